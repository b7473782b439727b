// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/step"
)

// stock measures the reference plugin in podweir's place; nothing is expected
// but that it is told.
func stock(ctx context.Context, r *Run) {
	starting, give := context.WithCancelCause(ctx)
	defer give(nil)
	go r.watchRefusals(starting, give)
	if err := step.Run(func() { r.pods(starting) }); err != nil {
		if refused := context.Cause(starting); refused != nil {
			err = refused
		}
		r.note("pods do not start: %v", err)
		step.OK(ctx.Err())
		return
	}
	// A bucket that begins full takes the first load.
	for _, l := range []struct {
		where  string
		peer   *workload.Pod
		during func(context.Context) error
	}{
		{"first, from the other node", r.far, workload.Wait(12 * time.Second)},
		{"then, from the other node", r.far, r.noteAnswers},
		{"on its node", r.near, r.noteAnswers},
	} {
		t := step.Get(workload.Load{Pod: r.early, Peer: l.peer}.While(ctx, l.during))
		d := t.Directions(capIn, capOut)
		r.note("%s: worst second %.2f of %s in, %.2f of %s out", l.where, d[0].WorstSecond(), capInText, d[1].WorstSecond(), capOutText)
	}
}

// watchRefusals gives up with what the runtime says when it could not make a pod
// twice: it goes on trying, and nothing changes.
func (r *Run) watchRefusals(ctx context.Context, give context.CancelCauseFunc) {
	for ctx.Err() == nil {
		var events struct {
			Items []struct {
				InvolvedObject struct{ Name string }
				Message        string
				Count          int
			}
		}
		// A look that fails is taken again.
		_ = r.Cluster.Get(ctx, &events, "events", "--field-selector", "reason=FailedCreatePodSandBox")
		refused := map[string]int{}
		for _, e := range events.Items {
			if refused[e.InvolvedObject.Name] += max(e.Count, 1); refused[e.InvolvedObject.Name] > 1 {
				give(fmt.Errorf("pod %s: %s", e.InvolvedObject.Name, e.Message))
				return
			}
		}
		_ = workload.Wait(time.Second)(ctx)
	}
}

// severalInterfaces is the doctor's check of pods with more than one interface.
const severalInterfaces = "PW604"

// stockQueue is the queue of the reference plugin on the host side of a pod.
func stockQueue(ctx context.Context, p *workload.Pod) (string, error) {
	out, err := p.Node.Exec(ctx, "bash", "-c", `
peer=$(nsenter --net="$1" ip -o link show eth0 | sed -E 's/.*@if([0-9]+):.*/\1/')
tc qdisc show dev "$(ip -o link | sed -nE "s/^$peer: ([^@:]+)[@:].*/\1/p")" root`, "bash", "/run/netns/"+filepath.Base(p.NS.Path()))
	if err != nil {
		return "", err
	}
	if !strings.Contains(out, "tbf") {
		return "", expect("a queue of the CNI's own bandwidth plugin on the pod's device", fmt.Errorf("%q", out))
	}
	return out, nil
}

// cniInterfaces loads both interfaces that the CNI itself gives a pod: each has the whole
// limit, and with interfaces=shared they have it together.
func cniInterfaces(ctx context.Context, r *Run) {
	cni := r.CNI.(cnis.TwoInterfaces)
	name, annotations := cni.Second()
	limits := workload.Limits(capInText, capOutText)
	maps.Copy(limits, annotations)
	p := r.run(ctx, "twofold", 0, limits)
	second := step.Get(r.interfaceOf(ctx, p, name))
	peer := r.free
	if cni.Outbound() {
		r.guests = append(r.guests, "outside")
		peer = step.Get(workload.OnNode(ctx, r.Cluster, "outside", r.Cluster.Members[1]))
	} else {
		second.Outbound = ""
	}
	loads := func(setting string, in, out uint64) {
		r.capsOf(ctx, p, in, out)
		r.together(
			ctx, measured,
			load{setting + ": eth0", workload.Load{Pod: p, Peer: r.far}, in, out, true},
			load{name + " at the same time", workload.Load{Pod: p, Peer: peer, At: second}, in, out, true},
		)
	}
	loads("each", capIn, capOut)
	r.upgrade(ctx, "defaults.interfaces=shared")
	agentsReady(ctx, r)
	// If each interface keeps to its half in each second, both together keep to the limit.
	loads("shared", capIn/2, capOut/2)
	soon(ctx, 20*time.Second, "no finding about interfaces that share the limit", func(ctx context.Context) {
		step.OK(undeclared(step.Get(r.findings(ctx, r.Cluster.Members...)), nil))
	})
	r.upgrade(ctx)
	agentsReady(ctx, r)
	r.capsOf(ctx, p, capIn, capOut)
}

// interfaceOf finds an interface of a pod.
func (r *Run) interfaceOf(ctx context.Context, p *workload.Pod, name string) (_ *workload.Interface, err error) {
	defer step.End(&err)
	attached := step.Get(r.Cluster.Attachments(ctx, p.Node))
	at := slices.IndexFunc(attached, func(a cluster.Attachment) bool {
		return a.Pod == "default/"+p.Name && a.Interface.PodName == name
	})
	if at < 0 {
		return nil, expect("status shows "+name+" with limits", fmt.Errorf("attachments %+v", attached))
	}
	found := &workload.Interface{Name: name, Outbound: attached[at].Interface.HostName}
	err = p.NS.Do(func() error {
		device, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		addrs, err := device.Addrs()
		for _, a := range addrs {
			if prefix, failed := netip.ParsePrefix(a.String()); failed == nil && prefix.Addr().Is4() {
				found.IP = prefix.Addr()
			}
		}
		return err
	})
	return found, err
}

// second is the network that a second CNI call attaches, as Multus does. A route
// through it leads to one address.
const second = `{"cniVersion": "1.0.0", "name": "second", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]], "routes": [{"dst": "%s/32"}]}},
  {"type": "podweir-cni", "capabilities": {"bandwidth": true}}
]}`

// secondNetwork attaches another interface to the pod that stays, with limits
// of its own, loads both, and unplugs it under load.
func secondNetwork(ctx context.Context, r *Run) {
	node := r.Cluster.Members[0]
	step.Get(node.Exec(ctx, "mkdir", "-p", "/etc/cni/second.d"))
	step.OK(node.WriteFile("/etc/cni/second.d/20-second.conflist", fmt.Sprintf(second, r.free.IP)))
	net1, err := r.attach(ctx)
	step.OK(expect("a second interface is attached", err))
	attached := step.Get(r.Cluster.Attachments(ctx, node))
	if !slices.ContainsFunc(attached, func(a cluster.Attachment) bool { return a.Interface.PodName == net1.Name }) {
		step.OK(expect("status shows net1 with its own limits", fmt.Errorf("attachments %+v", attached)))
	}
	r.together(
		ctx, measured,
		load{"eth0", workload.Load{Pod: r.early, Peer: r.far}, capIn, capOut, true},
		load{"net1 at the same time", workload.Load{Pod: r.early, Peer: r.free, At: net1}, otherIn, otherOut, true},
	)
	found := step.Get(r.findings(ctx, r.Cluster.Members...))
	for _, what := range found {
		r.note("%s", what)
	}
	if found[severalInterfaces] == "" {
		step.OK(expect("the doctor says that the pod has two limited interfaces ("+severalInterfaces+")", fmt.Errorf("findings %v", found)))
	}
	step.OK(expect("no other finding", undeclared(found, map[string]string{severalInterfaces: "the pod has two"})))
	r.underLoad(ctx, "eth0 while net1 is unplugged", func(ctx context.Context) { step.Get(r.second(ctx, "del")) })
	step.OK(expect("eth0 keeps its limits without net1", step.Run(func() { r.capsOf(ctx, r.early, capIn, capOut) })))
	attached = step.Get(r.Cluster.Attachments(ctx, node))
	if slices.ContainsFunc(attached, func(a cluster.Attachment) bool { return a.Interface.PodName == net1.Name }) {
		step.OK(expect("nothing of net1 is left", fmt.Errorf("attachments %+v", attached)))
	}
	step.Get(node.Exec(ctx, "rm", "-rf", "/etc/cni/second.d", "/var/lib/cni/networks/second"))
}

// attach makes the second interface.
func (r *Run) attach(ctx context.Context) (*workload.Interface, error) {
	out, err := r.second(ctx, "add")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.IPs) != 1 {
		return nil, fmt.Errorf("one address is expected: %w: %s", err, out)
	}
	return &workload.Interface{Name: "net1", IP: result.IPs[0].Address.Addr()}, nil
}

// second makes a call of CNI about the second network. cnitool names the container by
// its namespace, which no runtime knows.
func (r *Run) second(ctx context.Context, verb string) (string, error) {
	node := r.Cluster.Members[0]
	netns := "/" + strings.TrimPrefix(r.early.NS.Path(), node.Path("/")+"/")
	return node.Exec(ctx, "env", "CNI_PATH=/opt/cni/bin", "NETCONFPATH=/etc/cni/second.d", "CNI_IFNAME=net1",
		fmt.Sprintf(`CAP_ARGS={"bandwidth": {"ingressRate": %d, "ingressBurst": 4294967295, "egressRate": %d, "egressBurst": 4294967295}}`, otherIn, otherOut),
		"/opt/cni/bin/cnitool", verb, "second", netns)
}
