// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/step"
)

// Namespace of podweir's release.
const Namespace = "kube-system"

// The chart's defaults.
const (
	metricsPort = 9479
	healthPort  = 9478
)

// Upgrade brings podweir's release to the chart's values of a name and these, from
// whatever it is; chart is the directory of the chart. It does not wait for agents.
func (c *Cluster) Upgrade(ctx context.Context, chart, values string, set ...string) error {
	args := []string{
		"upgrade", "--install", "podweir", chart, "-n", Namespace, "-f", chart + "/values/" + values + ".yaml",
		// What the nodes have imported is all there is. A rollout that goes wrong stops at
		// the first node by default; here nobody waits for that.
		"--set", "image.pullPolicy=Never", "--set", "minReadySeconds=0",
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	return step.Err(c.Helm(ctx, args...))
}

// Rollout waits until every agent is ready and has the values of the last
// upgrade.
func (c *Cluster) Rollout(ctx context.Context) error {
	return step.Err(c.Kubectl(ctx, "", "-n", Namespace, "rollout", "status", "daemonset/podweir", "--timeout=80s"))
}

// Uninstall takes podweir's release away, if there is one, and returns when its
// agents are gone.
func (c *Cluster) Uninstall(ctx context.Context) error {
	if _, err := c.Helm(ctx, "uninstall", "podweir", "-n", Namespace, "--ignore-not-found"); err != nil {
		return err
	}
	return Eventually(ctx, 90*time.Second, func(ctx context.Context) error {
		left, err := c.Agents(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are still %v", left)
		}
		return err
	})
}

// Agents are the names of the agents' pods by their nodes.
func (c *Cluster) Agents(ctx context.Context) (map[string]string, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
	}
	err := c.Get(ctx, &list, "pods", "-n", Namespace, "-l", "app.kubernetes.io/name=podweir")
	found := map[string]string{}
	for _, p := range list.Items {
		found[p.Spec.NodeName] = p.Metadata.Name
	}
	return found, err
}

// Podweir runs podweir in the agent of a node.
func (c *Cluster) Podweir(ctx context.Context, n *Node, args ...string) (_ string, err error) {
	defer step.End(&err)
	agents := step.Get(c.Agents(ctx))
	if agents[n.Name] == "" {
		return "", fmt.Errorf("no agent on %s: %v", n.Name, agents)
	}
	return c.Kubectl(ctx, "", append([]string{"-n", Namespace, "exec", agents[n.Name], "--", "podweir"}, args...)...)
}

// Report is what the doctor says of a node.
type Report struct {
	Profile string
	Why     string `json:"profileWhy"`
	Checks  []Check
}

// Check is one line of a report.
type Check struct{ Code, Title, Status, Seen, Expected, Fix string }

func (c Check) String() string {
	return fmt.Sprintf("%s: %s: %s; expected %s; fix: %s", c.Code, c.Status, c.Seen, c.Expected, c.Fix)
}

// Findings are the checks that are neither ok nor skipped.
func (r *Report) Findings() []Check {
	var found []Check
	for _, c := range r.Checks {
		if c.Status != "ok" && c.Status != "skip" {
			found = append(found, c)
		}
	}
	return found
}

// Doctor asks the doctor of a node's agent.
func (c *Cluster) Doctor(ctx context.Context, n *Node) (*Report, error) {
	r := &Report{}
	return r, c.ask(ctx, n, "doctor", r)
}

// Attachment is a limited interface as `podweir status` has it.
type Attachment struct {
	Pod, By, Error string
	Drift          []string
	Interface      struct{ PodName, HostName string }
	Directions     []struct {
		Direction, Side, Queue string
		Notes                  []string
	}
}

// Attachments are those of a node.
func (c *Cluster) Attachments(ctx context.Context, n *Node) ([]Attachment, error) {
	var status struct{ Attachments []Attachment }
	err := c.ask(ctx, n, "status", &status)
	return status.Attachments, err
}

// Attachment is the first one of a pod of the namespace default, nil if there is none.
func (c *Cluster) Attachment(ctx context.Context, n *Node, pod string) (*Attachment, error) {
	all, err := c.Attachments(ctx, n)
	for i := range all {
		if all[i].Pod == "default/"+pod {
			return &all[i], err
		}
	}
	return nil, err
}

// ask reads what a command of podweir's says on a node.
func (c *Cluster) ask(ctx context.Context, n *Node, command string, into any) error {
	// It ends with an error if anything is not as it should be; then it has written all the same.
	out, failed := c.Podweir(ctx, n, command, "-o", "json")
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return errors.Join(failed, err)
	}
	return nil
}

// Fetch reads from the HTTP port of the node's agent; another status than 200 is
// an error with what it answered. It asks on the node's loopback, as the kubelet does.
func (n *Node) Fetch(ctx context.Context, path string) (_ string, err error) {
	defer step.End(&err)
	port := healthPort
	if path == "/metrics" {
		port = metricsPort
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.Netns().Dial}}
	req := step.Get(http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), http.NoBody))
	res, err := client.Do(req)
	step.OK(err)
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}
