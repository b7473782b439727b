// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package examine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/datapath"
)

// runtimeTimeout bounds the question for the version.
const runtimeTimeout = time.Second

// Runtime implements [detect.Live].
func (n *Node) Runtime(ctx context.Context) (is string, err error) {
	err = n.askRuntime(ctx, runtimeTimeout, func(ctx context.Context, c *cri.Client) (err error) {
		is, err = c.Version(ctx)
		return err
	})
	return is, err
}

// TCX implements [detect.Live].
func (n *Node) TCX(context.Context) (bool, error) { return datapath.ProbeTCX() }

// RuntimeNetwork implements [detect.Live].
func (n *Node) RuntimeNetwork(ctx context.Context) (*detect.RuntimeNetwork, error) {
	var network *cri.Network
	err := n.askRuntime(ctx, runtimeTimeout, func(ctx context.Context, c *cri.Client) (err error) {
		network, err = c.Network(ctx)
		return err
	})
	if err != nil || network == nil {
		return nil, err
	}
	return (*detect.RuntimeNetwork)(network), nil
}

// within bounds a question that usually has so much time.
func (n *Node) within(ctx context.Context, usual time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, usual*time.Duration(max(n.Patience, 1)))
}

// askRuntime puts one question to the container runtime.
func (n *Node) askRuntime(ctx context.Context, timeout time.Duration, question func(context.Context, *cri.Client) error) error {
	ctx, cancel := n.within(ctx, timeout)
	defer cancel()
	client := &cri.Runtime{Root: n.Root, Socket: n.CRISocket}
	defer func() { _ = client.Close() }()
	c, err := client.Open()
	if err != nil {
		return err
	}
	return question(ctx, c)
}

// ciliumTimeout bounds one question to Cilium's agent.
const ciliumTimeout = 2 * time.Second

// ciliumPods says where to look when the agent does not answer.
const ciliumPods = "; see kubectl --namespace kube-system get pods --selector k8s-app=cilium"

// maxAnswer bounds what is read of an answer, in bytes: /v1/config has some 20 kB.
const maxAnswer = 4 << 20

// CiliumAPI asks Cilium's agent over its socket.
func (n *Node) CiliumAPI(ctx context.Context, resource string) ([]byte, error) {
	ctx, cancel := n.within(ctx, ciliumTimeout)
	defer cancel()
	const socket = "/run/cilium/cilium.sock"
	status, body, err := get(ctx, "http://cilium"+resource, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(n.Root, socket))
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("it does not run, or its directory is not mounted here: there is no " + socket + ciliumPods)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, errors.New("it does not run: no program listens on " + socket + ciliumPods)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("it does not answer on %s within %v", socket, ciliumTimeout)
	}
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the agent answers %d %s", status, http.StatusText(status))
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// get asks over a connection of its own. At most maxAnswer is read.
func get(ctx context.Context, url string, dial func(context.Context) (net.Conn, error)) (status int, body []byte, err error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, body, errors.Join(err, res.Body.Close())
}

// agentTimeout bounds the question to podweir's agent.
const agentTimeout = time.Second

// Agent implements [doctor.Kernel]. Without an address nobody is asked.
func (n *Node) Agent(ctx context.Context) (*doctor.Agent, error) {
	if n.HealthAddress == "" {
		return nil, nil
	}
	ctx, cancel := n.within(ctx, agentTimeout)
	defer cancel()
	// Here, since only this thread need be in the network namespace that is looked at.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.HealthAddress)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--health-address: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_, body, err := get(ctx, "http://"+n.HealthAddress+"/readyz", func(context.Context) (net.Conn, error) { return conn, nil })
	if err != nil {
		return nil, err
	}
	agent := readyz(string(body))
	if agent == nil {
		return nil, fmt.Errorf("what answers on %s (--health-address) is not podweir's agent", n.HealthAddress)
	}
	return agent, nil
}

// readyz reads what [serve.Health] answers: a line for each part. Without one it is
// another program's answer, and nil.
func readyz(body string) *doctor.Agent {
	var agent doctor.Agent
	answered := false
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		text, broken := strings.CutPrefix(line, "not ready: ")
		if broken {
			part, reason, _ := strings.Cut(text, ": ")
			agent.NotReady = append(agent.NotReady, doctor.Part{Name: part, Reason: reason})
		}
		answered = answered || broken || strings.HasPrefix(line, "ok: ")
	}
	if !answered {
		return nil
	}
	return &agent
}
