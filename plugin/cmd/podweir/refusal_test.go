// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/cri/critest"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// The node's own devices are never limited: not by a path of a process of the node or of a
// pod with hostNetwork, by hand or by a runtime.
func TestPrivilegedNodeIsNeverLimited(t *testing.T) {
	const sentence = "is the network namespace of the node itself"
	n := starting(newCLI(t), nil)
	n.node.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "uplink")
	n.path = n.node.Path()
	if err := n.verb(t, "ADD"); err == nil || !strings.Contains(err.Error(), sentence) {
		t.Errorf("ADD: %v, want %q", err, sentence)
	}
	for _, device := range []string{"eth0", "veth1"} {
		n.fails(t, []string{sentence}, "attach", "--netns", n.path, "--ifname", device, "--egress", "1M")
		if out := n.node.Run(t, "tc", "qdisc", "show", "dev", device); strings.Contains(out, "tbf") {
			t.Errorf("%s has a limit: %s", device, out)
		}
	}
}

// A filter on the host side is refused beside every Cilium with the same sentence:
// by ADD, CHECK and the agent, which all decide so, and by hand. The delivery and the
// doctor are held to it in their own packages.
func TestOneRefusal(t *testing.T) {
	told := judge.Rules{HostTCX: true}
	sentence := told.Mode(terms.ModeClsactHostSide).Error()
	seen := 0
	for _, p := range profiles.All() {
		if p.Family != "cilium" {
			continue
		}
		seen++
		t.Run(p.Name, func(t *testing.T) {
			if !p.NoHostFilter() {
				t.Fatal("the entry would not have hostHook tcx")
			}
			for direction, key := range map[terms.Direction]string{terms.Egress: "egressMode", terms.Ingress: "ingressMode"} {
				cfg, err := netconf.ParseStrict(netconf.Add, []byte(`{"cniVersion":"1.0.0","name":"n","type":"podweir-cni","hostHook":"tcx","`+key+`":"clsact-hostside",`+
					`"egressRate":"10M","ingressRate":"10M","prevResult":{"cniVersion":"1.0.0"}}`))
				must.OK(t, err)
				req := &attach.Request{Config: &cfg.Shaping, Facts: shaping.Facts{TBF: true, Prio: true, IFB: true, MTU: 1500}, TCX: true, Random: shaping.RandomMajor}
				req.Strict = true
				if _, _, err := attach.Decide(req, nobodyThere()); err == nil || !strings.Contains(err.Error(), direction.String()+": "+sentence) {
					t.Errorf("by name: %v, want %q", err, sentence)
				}
				req.Strict = false
				want, _, err := attach.Decide(req, nobodyThere())
				must.OK(t, err)
				if all := strings.Join(want.Directions[direction].Params.Declined, "; "); !strings.Contains(all, sentence) {
					t.Errorf("what was declined is %q, want %q", all, sentence)
				}
				if want.Directions[direction].Params.Mode == terms.ModeClsactHostSide {
					t.Error("it is a filter on the host side all the same")
				}
				cfg.Shaping.HostTCX = false // by hand nobody wrote an entry
				if err := heed(p, &cfg.Shaping); err == nil || !strings.Contains(err.Error(), direction.String()+": "+sentence) {
					t.Errorf("by hand: %v, want %q", err, sentence)
				}
			}
		})
	}
	if seen != 8 {
		t.Errorf("%d profiles of Cilium, want 8", seen)
	}
}

func nobodyThere() *attach.Observed {
	return &attach.Observed{Devices: map[terms.Side]*attach.Device{
		terms.SidePod: {Exists: true, Name: "eth0", Index: 2}, terms.SideHost: {Exists: true, Name: "lxc1", Index: 3},
	}}
}

// Beside a CNI whose packets go past the host side, status says of a limit there what
// PW402 says.
func TestPrivilegedStatusOfALimitThatIsBypassed(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	c := newCLI(t)
	root := hostTree(t, map[string]string{"etc/cni/net.d/05-cilium.conflist": ciliumList, "opt/cni/bin/cilium-cni": "x"})
	for verb, args := range map[string][]string{"attach": {"--egress", "10M", "--ingress", "20M"}, "set": {"--ingress", "20M"}} {
		if verb == "set" { // a direction that had no limit
			c.must(t, append(c.netns(), "attach", "--root", root, "--egress", "10M")...)
		}
		c.must(t, append(append(c.netns(), verb, "--root", root), args...)...)
		if d := parse[status.Report](t, c, "status", "--root", root).Attachments[0].Directions[1]; d.Side.Is != terms.SideIFB || d.Bypassed != "" {
			t.Errorf("%s puts ingress on the %s side, bypassed %q, want the ifb", verb, d.Side, d.Bypassed)
		}
		c.must(t, append(c.netns(), "detach")...)
	}
	c.must(t, append(c.netns(), "attach", "--root", root, "--egress", "10M", "--ingress", "20M", "--with", "ingressPlace=host")...)
	out, err := c.do(t, "status", "--root", root)
	if err == nil || !strings.Contains(out, "NOT LIMITED") || !strings.Contains(out, "packets go past the ingress limit at the host side of eth0") {
		t.Errorf("status = %v and prints %q, want that packets go past the limit", err, out)
	}
	// Elsewhere the host side is the place.
	if out := c.must(t, "status", "--root", t.TempDir()); !strings.Contains(out, "limited as it should be") {
		t.Errorf("status prints %q", out)
	}
}

// A pod of gVisor has no limit of ingress where that is in the pod, and status says so. On
// its node attach keeps ingress out of the pod, and what others use of the node is limited
// as it should be.
func TestPrivilegedStatusOfAPodThatReadsAhead(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	c := newCLI(t)
	const handler = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.box]\nruntime_type = 'io.containerd.runsc.v1'\n"
	root := hostTree(t, map[string]string{"etc/containerd/conf.d/box.toml": handler, "etc/cni/net.d/10-ptp.conflist": `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"}]}`})
	runtime := &critest.Runtime{}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	stop, err := runtime.Serve(socket)
	must.OK(t, err)
	defer stop()
	at := func(place string) *status.Direction {
		c.must(t, append(c.netns(), "attach", "--root", root, "--egress", "10M", "--ingress", "20M", "--with", "ingressPlace="+place)...)
		rep := parse[status.Report](t, c, "status", "--root", root, "--cri-socket", socket)
		return &rep.Attachments[0].Directions[1]
	}
	look := func() (string, error) { return c.do(t, "status", "--root", root, "--cri-socket", socket) }
	if d := at("auto"); d.Side.Is != terms.SideHost || d.Bypassed != "" {
		t.Errorf("attach puts ingress on the %s side, bypassed %q, want the host's", d.Side, d.Bypassed)
	}
	at("ifb")
	if out, err := look(); err != nil || !strings.Contains(out, "limited as it should be") {
		t.Errorf("status of a pod that the runtime does not know: %v, %q", err, out)
	}
	id, err := manualID(c.pod.Path(), "eth0")
	must.OK(t, err)
	must.OK(t, runtime.Add(critest.Sandbox{ID: id.ContainerID, UID: "u", NetNS: c.pod.Path(), Namespace: "default", Name: "box", Handler: "box"}))
	if out, err := look(); err == nil || !strings.Contains(out, "NOT LIMITED") || !strings.Contains(out, "packets go past the ingress limit in the pod of eth0: gVisor") || !strings.Contains(out, "PW117") {
		t.Errorf("status = %v and prints %q, want that gVisor reads ahead of the limit", err, out)
	}
	at("host")
	if out, err := look(); err != nil || !strings.Contains(out, "limited as it should be") {
		t.Errorf("status of a limit at the host side: %v, %q", err, out)
	}
}
