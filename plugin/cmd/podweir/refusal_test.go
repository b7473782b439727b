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
	"github.com/podweir/podweir/plugin/engine"
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
	must.Fail(t, "ADD", n.verb(t, "ADD"), sentence)
	for _, device := range []string{"eth0", "veth1"} {
		n.fails(t, []string{sentence}, "attach", "--netns", n.path, "--ifname", device, "--egress", "1M")
		must.Have(t, device, n.node.Run(t, "tc", "qdisc", "show", "dev", device), "!tbf")
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
				_, _, err = attach.Decide(req, nobodyThere())
				must.Fail(t, "by name", err, direction.String()+": "+sentence)
				req.Strict = false
				want, _, err := attach.Decide(req, nobodyThere())
				must.OK(t, err)
				must.Have(t, "what was declined", strings.Join(want.Directions[direction].Params.Declined, "; "), sentence)
				if want.Directions[direction].Params.Mode == terms.ModeClsactHostSide {
					t.Error("it is a filter on the host side all the same")
				}
				cfg.Shaping.HostTCX = false // by hand nobody wrote an entry
				must.Fail(t, "by hand", heed(p, &cfg.Shaping), direction.String()+": "+sentence)
			}
		})
	}
	must.Be(t, "profiles of Cilium", 8, seen)
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
	c.broken(t, []string{"NOT LIMITED", "packets go past the ingress limit at the host side of eth0"}, "status", "--root", root)
	name := engine.ManualNetwork + "/" + must.Get(manualID(c.pod.Path(), "eth0"))(t).ContainerID
	c.broken(t, []string{"NOT LIMITED", "packets go past the ingress limit at the host side of eth0"}, "explain", name, "--root", root)
	c.well(t, []string{"NOT LIMITED"}, "top", "--count", "1", "--interval", "100ms", "--root", root)
	// Elsewhere the host side is the place.
	c.well(t, []string{"limited as it should be"}, "status", "--root", t.TempDir())
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
	stop := must.Get(runtime.Serve(socket))(t)
	defer stop()
	at := func(place string) *status.Direction {
		c.must(t, append(c.netns(), "attach", "--root", root, "--egress", "10M", "--ingress", "20M", "--with", "ingressPlace="+place)...)
		rep := parse[status.Report](t, c, "status", "--root", root, "--cri-socket", socket)
		return &rep.Attachments[0].Directions[1]
	}
	look := []string{"status", "--root", root, "--cri-socket", socket}
	if d := at("auto"); d.Side.Is != terms.SideHost || d.Bypassed != "" {
		t.Errorf("attach puts ingress on the %s side, bypassed %q, want the host's", d.Side, d.Bypassed)
	}
	at("ifb")
	c.well(t, []string{"limited as it should be"}, look...) // the runtime does not know it
	id := must.Get(manualID(c.pod.Path(), "eth0"))(t)
	must.OK(t, runtime.Add(critest.Sandbox{ID: id.ContainerID, UID: "u", NetNS: c.pod.Path(), Namespace: "default", Name: "box", Handler: "box"}))
	c.broken(t, []string{"NOT LIMITED", "packets go past the ingress limit in the pod of eth0: gVisor", "PW117"}, look...)
	at("host")
	c.well(t, []string{"limited as it should be"}, look...)
}
