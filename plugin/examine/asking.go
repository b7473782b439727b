// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package examine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
)

// podsTimeout bounds the question for all pods: what podweir knows by itself is shown
// without it.
const podsTimeout = 2 * time.Second

// Pods are the pods that the container runtime tells of.
func (n *Node) Pods(ctx context.Context) (pods []cri.Pod, err error) {
	err = n.askRuntime(ctx, podsTimeout, func(ctx context.Context, c *cri.Client) (err error) {
		pods, err = c.Pods(ctx)
		return err
	})
	return pods, err
}

// Handlers are the runtime handlers of the node's pods by the container IDs of their
// sandboxes, "" for the default one.
func (n *Node) Handlers(ctx context.Context) (handlers map[string]string, err error) {
	err = n.askRuntime(ctx, podsTimeout, func(ctx context.Context, c *cri.Client) (err error) {
		handlers, err = c.Handlers(ctx)
		return err
	})
	return handlers, err
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
		if p.NetNSPath == "" { // it has the node's network
			continue
		}
		s := doctor.Sandbox{ContainerID: p.ID, Pod: p.Name, NetNS: p.NetNSPath, Made: p.Created}
		s.Asks, s.Misspelt = wishes(p.Annotations)
		if noEntry == nil && len(s.Asks) > 0 {
			conf, err := netconf.ParseEntry(whole, netconf.KeepAnnotations(p.Annotations), nil)
			s.Left = err == nil && !conf.Shaping.Limited() && len(conf.Shaping.Deferred) > 0
		}
		all = append(all, s)
	}
	return all, err
}

// wishes are the annotations that ask for a limit, and those that may be meant to.
func wishes(annotations map[string]string) (asks []terms.Ask, misspelt []string) {
	for name, value := range annotations {
		if slices.Contains(netconf.RateAnnotations, name) {
			d := terms.Ingress
			if name == netconf.EgressAnnotation || name == netconf.OwnEgressAnnotation {
				d = terms.Egress
			}
			asks = append(asks, terms.Ask{Direction: d, Name: name, Value: netconf.Cut(value)})
		} else if near := terms.Nearest(name, netconf.RateAnnotations); near != "" {
			misspelt = append(misspelt, fmt.Sprintf("%s, did you mean %s?", name, near))
		}
	}
	slices.SortFunc(asks, func(a, b terms.Ask) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(misspelt)
	return asks, misspelt
}

// Asked is what a node's pods ask for, to be compared with what they have.
type Asked struct {
	node   *Node
	root   fs.FS
	found  *detect.Node
	asking []doctor.Sandbox
	agent  *doctor.Agent
}

// Asked asks the runtime and the agent, once.
func (n *Node) Asked(ctx context.Context) *Asked {
	a := &Asked{node: n, root: detect.HostRoot(n.Root)}
	a.found = detect.Read(ctx, a.root, detect.Options{Live: n})
	// What does not answer leaves what the files have.
	a.asking, _ = n.Asking(ctx, doctor.OwnEntry(a.root, a.found))
	a.agent, _ = n.Agent(ctx)
	return a
}

// Found is the node as it was read.
func (a *Asked) Found() *detect.Node { return a.found }

// Add adds to a report the devices of pods that podweir has no limit on, the pods that ask
// for a limit and have none, by the judgement of PW605, and where the node loses packets.
func (a *Asked) Add(rep *status.Report) error {
	var paths []string
	for i := range a.asking {
		paths = append(paths, a.asking[i].NetNS)
	}
	pods := make([]status.RuntimePod, 0, len(a.asking)+len(rep.Attachments))
	for i := range a.asking {
		pods = append(pods, status.RuntimePod{Pod: a.asking[i].Pod, NetNSPath: a.asking[i].NetNS})
	}
	// Another device of a limited pod has its name, also where no runtime answers.
	for i := range rep.Attachments {
		at := &rep.Attachments[i]
		if path := at.Interface.NetNSPath; !slices.Contains(paths, path) {
			paths, pods = append(paths, path), append(pods, status.RuntimePod{Pod: at.Name(), NetNSPath: path})
		}
	}
	others, err := a.node.Paths.Others(paths)
	if err != nil {
		return err
	}
	for _, s := range doctor.Unheard(a.root, a.found, a.asking, a.agent, known(rep)) {
		// A pod that ended meanwhile, or that has just started, is none that was passed over.
		if _, err := os.Stat(s.NetNS); s.NetNS != "" && errors.Is(err, fs.ErrNotExist) || time.Since(s.Made) < status.Young {
			continue
		}
		one := status.RuntimePod{Pod: s.String(), NetNSPath: s.NetNS, Devices: s.Devices, Asks: s.Asks, Misspelt: s.Misspelt}
		if s.Pod != "" {
			one.Pod = s.Pod
		}
		if slices.ContainsFunc(rep.Lost, func(l engine.Lost) bool {
			return l.Interface.NetNSPath == s.NetNS && s.NetNS != "" || slices.Contains(s.Devices, l.Interface.HostName)
		}) {
			continue // it is limited without a record, which is told
		}
		pods = slices.DeleteFunc(pods, func(p status.RuntimePod) bool { return p.NetNSPath == s.NetNS })
		pods = append(pods, one)
	}
	rep.AddOthers(others, pods)
	rep.Losses, err = a.node.Paths.Losses()
	return err
}

// known is what a report has of pods, in the doctor's words.
func known(rep *status.Report) []doctor.Attachment {
	all := failures(rep)
	for i := range rep.Attachments {
		all = append(all, doctor.Attachment{Pod: rep.Attachments[i].Name(), ContainerID: rep.Attachments[i].ID.ContainerID})
	}
	for _, o := range rep.Overdue {
		all = append(all, doctor.Attachment{Pod: o.Pod, Failure: o.Error})
	}
	return all
}
