// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package examine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// runtimeTimeout bounds the question for the version.
const runtimeTimeout = time.Second

// Runtime implements [detect.Live].
func (n *Node) Runtime(ctx context.Context) (string, error) {
	return ask(ctx, n, runtimeTimeout, (*cri.Client).Version)
}

// TCX implements [detect.Live].
func (n *Node) TCX(context.Context) (bool, error) { return datapath.ProbeTCX() }

// RuntimeNetwork implements [detect.Live].
func (n *Node) RuntimeNetwork(ctx context.Context) (*detect.RuntimeNetwork, error) {
	return ask(ctx, n, runtimeTimeout, (*cri.Client).Network)
}

// within bounds a question that usually has so much time.
func (n *Node) within(ctx context.Context, usual time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, usual*time.Duration(max(n.Patience, 1)))
}

// ask puts one question to the container runtime.
func ask[T any](ctx context.Context, n *Node, timeout time.Duration, question func(*cri.Client, context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := n.within(ctx, timeout)
	defer cancel()
	client := &cri.Client{Root: n.Root, Socket: n.CRISocket}
	defer func() { _ = client.Close() }()
	return question(client, ctx)
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
	code, body, err := get(ctx, "http://cilium"+resource, func(ctx context.Context) (net.Conn, error) {
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
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the agent answers %d %s", code, http.StatusText(code))
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// get asks over a connection of its own. At most maxAnswer is read.
func get(ctx context.Context, url string, dial func(context.Context) (net.Conn, error)) (code int, body []byte, err error) {
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
		kind, text, found := strings.Cut(line, ": ")
		part, reason, _ := strings.Cut(text, ": ")
		switch {
		case found && kind == "not ready":
			agent.NotReady = append(agent.NotReady, doctor.Part{Name: part, Reason: reason})
		case found && kind == "note":
			agent.Notes = append(agent.Notes, doctor.Part{Name: part, Reason: reason})
		case !found || kind != "ok":
			continue
		case part == "delivery":
			agent.Delivery = profiles.Delivery(reason)
		}
		answered = true
	}
	if !answered {
		return nil
	}
	return &agent
}

// podsTimeout bounds the question for all pods: what podweir knows by itself is shown
// without it.
const podsTimeout = 2 * time.Second

// Pods are the pods that the container runtime tells of.
func (n *Node) Pods(ctx context.Context) ([]cri.Pod, error) {
	return ask(ctx, n, podsTimeout, (*cri.Client).Pods)
}

// Handlers are the runtime handlers of the node's pods by the container IDs of their
// sandboxes, "" for the default one.
func (n *Node) Handlers(ctx context.Context) (map[string]string, error) {
	return ask(ctx, n, podsTimeout, (*cri.Client).Handlers)
}

// Asking implements [doctor.Kernel]. The agent's own doctor asks nobody: the agent knows what
// pods ask for now, and the answer may be large.
func (n *Node) Asking(ctx context.Context, entry []byte) ([]doctor.Sandbox, error) {
	if n.Young > 0 {
		return nil, nil
	}
	pods, err := n.Pods(ctx)
	whole, noEntry := WholeEntry(entry) // an error where podweir is not in the chain
	var all []doctor.Sandbox
	for i := range pods {
		p := &pods[i]
		if p.HostNetwork {
			continue
		}
		s := doctor.Sandbox{ContainerID: p.ID, Pod: p.Name, NetNS: p.NetNSPath, Addresses: p.Addresses, Made: p.Created}
		s.Asks, s.Misspelt = wishes(p.Annotations)
		if noEntry == nil && len(s.Asks) > 0 {
			conf, err := netconf.ParseEntry(whole, netconf.KeepAnnotations(p.Annotations), nil)
			if err == nil && !conf.Shaping.Limited() && len(conf.Shaping.Deferred) > 0 {
				s.LeftTo = conf.Shaping.Deferred[0].To.Title()
			}
		}
		all = append(all, s)
	}
	return all, err
}

// wishes are the annotations that ask for a limit, and those that may be meant to.
func wishes(annotations map[string]string) (asks []terms.Ask, misspelt []terms.Misspelt) {
	kept := netconf.KeepAnnotations(annotations)
	for _, name := range netconf.RateAnnotations {
		if value, ok := kept.Values[name]; ok {
			asks = append(asks, terms.Ask{Direction: netconf.DirectionOf(name), Name: name, Value: value})
		}
	}
	slices.SortFunc(asks, func(a, b terms.Ask) int { return strings.Compare(a.Name, b.Name) })
	return asks, kept.Misspelt()
}

// Asked is what a node's pods ask for, to be compared with what they have.
type Asked struct {
	node   *Node
	root   fs.FS
	found  *detect.Node
	asking []doctor.Sandbox
	agent  *doctor.Agent
	// untold is why the runtime did not tell of all its pods, "" if it did, or if none is seen.
	untold string
}

// Asked asks the runtime and the agent, once.
func (n *Node) Asked(ctx context.Context) *Asked {
	a := &Asked{node: n, root: detect.HostRoot(n.Root)}
	a.found = detect.Read(ctx, a.root, detect.Options{Live: n})
	var err error
	if a.asking, err = n.Asking(ctx, doctor.OwnEntry(a.root, a.found)); err != nil && !errors.Is(err, cri.ErrNoSocket) {
		a.untold = err.Error()
	}
	a.agent, _ = n.Agent(ctx)
	return a
}

// Found is the node as it was read.
func (a *Asked) Found() *detect.Node { return a.found }

// Add adds to a report the devices of pods that podweir has no limit on, the pods that ask
// for a limit and have none, by the judgement of PW605, and where the node loses packets.
func (a *Asked) Add(ctx context.Context, rep *status.Report) error {
	if a.untold != "" {
		rep.Missing = append(rep.Missing, "pods that ask for a limit and have none: "+a.untold)
	}
	if a.agent != nil {
		rep.NotReady = terms.Texts(a.agent.NotReady)
	}
	a.node.forgetEnded(ctx, rep)
	var paths []string
	pods := make([]status.RuntimePod, 0, len(a.asking)+len(rep.Attachments))
	for i := range a.asking {
		if path := a.asking[i].NetNS; path != "" {
			paths = append(paths, path)
			one := status.RuntimePod{Other: view.Other{Pod: a.asking[i].Pod, LeftTo: a.asking[i].LeftTo}, NetNSPath: path}
			if one.LeftTo != "" {
				one.Asks = a.asking[i].Asks
			}
			pods = append(pods, one)
		}
	}
	// Another device of a limited pod has its name, also where no runtime answers.
	for i := range rep.Attachments {
		at := &rep.Attachments[i]
		if path := at.Interface.NetNSPath; !slices.Contains(paths, path) {
			paths, pods = append(paths, path), append(pods, status.RuntimePod{Other: view.Other{Pod: at.Name()}, NetNSPath: path})
		}
	}
	others, err := a.node.Paths.Others(paths)
	if err != nil {
		return err
	}
	unheard := doctor.Unheard(a.root, a.found, a.asking, a.agent, known(rep))
	var running map[string]string
	if len(unheard) > 0 && len(a.asking) > 0 {
		if running, err = a.node.Handlers(ctx); err != nil {
			running = nil // what is not known has not ended
		}
	}
	for _, s := range unheard {
		// A pod that ended meanwhile, or that has just started, is none that was passed over.
		if _, runs := running[s.ContainerID]; running != nil && !runs {
			continue
		}
		if _, err := os.Stat(rtnl.Seen(s.NetNS)); s.NetNS != "" && errors.Is(err, fs.ErrNotExist) || time.Since(s.Made).Abs() < status.Young {
			continue
		}
		asks := view.Other{Pod: cmp.Or(s.Pod, s.String()), Asks: s.Asks, Misspelt: terms.Texts(s.Misspelt)}
		if slices.ContainsFunc(rep.Lost, func(l engine.Lost) bool {
			return s.In(l.Interface.NetNSPath, addressesIn(l.Interface.NetNSPath)) || slices.Contains(s.Devices, l.Interface.HostName)
		}) {
			continue // it is limited without a record, which is told
		}
		pods = slices.DeleteFunc(pods, func(p status.RuntimePod) bool { return p.NetNSPath == s.NetNS && s.NetNS != "" })
		pods = append(pods, status.RuntimePod{Other: asks, NetNSPath: s.NetNS, Devices: s.Devices})
	}
	rep.AddOthers(others, pods)
	rep.Losses, err = a.node.Paths.Losses()
	return err
}

// known is what a report has of pods, in the doctor's words.
func known(rep *status.Report) (all doctor.Limits) {
	for i := range rep.Attachments {
		a := &rep.Attachments[i]
		one := doctor.Attachment{Pod: a.Name(), ContainerID: a.ID.ContainerID, ByHandIn: byHandIn(a), Young: len(a.Directions) == 0}
		one.Addresses = addressesIn(one.ByHandIn)
		for j := range max(len(a.Directions), 1) {
			if !one.Young {
				one.Direction = a.Directions[j].Direction
			}
			all.Attached = append(all.Attached, one)
		}
	}
	all.Troubles = rep.Troubles(time.Now())
	return all
}
