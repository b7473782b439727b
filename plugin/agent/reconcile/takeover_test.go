// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A sandbox in the network namespace of another one gets its limits when the runtime has forgotten the other, and not
// before. The DEL of the other comes late and takes nothing from it.
func TestPrivilegedNamespaceOfAnEndedSandbox(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	first := n.newPod(t)
	first.annotate(both("10M", "10M"))
	must.OK(t, first.call(t, "ADD"))
	n.api.Delete(first.api.UID)
	second := *first
	second.container, second.api.Name, second.api.UID = "sandbox-second", "second", "uid-second"
	n.sandbox.set(second.api.UID, cri.Sandbox{ID: second.container, NetNSPath: second.ns.Path(), Interfaces: []string{"eth0"}})
	a := n.start(t, never)
	second.annotate(both("20M", "20M"))
	s := a.becomes(t, &second, reconcile.Held)
	testutil.Eventually(t, soon, "the namespace is watched, and looked at once more", func() bool { return a.state(&second).At.After(s.At) })
	second.gets(t, "10Mbit", "10Mbit")
	n.sandbox.drop(first.api.UID)
	a.Again()
	second.gets(t, "20Mbit", "20Mbit")
	must.OK(t, first.call(t, "DEL"))
	second.limits(t, "after the DEL of the first sandbox", "20Mbit", "20Mbit")
	must.OK(t, second.call(t, "CHECK"))
}

// A second sandbox of a pod whose ADD was killed behind its record: the DEL of the first leaves what limits the pod. When
// the second has programs of its own, what is left of the first goes.
func TestPrivilegedRestOfAnEndedSandbox(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	first := n.newPod(t)
	first.annotate(both("10M", "10M"))
	must.OK(t, first.call(t, "ADD"))
	a := n.start(t, never)
	a.has(t, first, 2)
	second := *first
	second.container = "sandbox-second"
	n.sandbox.set(first.api.UID, cri.Sandbox{ID: second.container, NetNSPath: second.ns.Path(), Interfaces: []string{"eth0"}})
	dir := func(p *pod) string { return filepath.Join(n.paths.Pins, "net", p.container+",eth0", "eth0") }
	record := must.Get(datapath.ReadRecord(dir(first)))(t)
	must.OK(t, os.MkdirAll(dir(&second), 0o700))
	must.OK(t, datapath.WriteRecord(dir(&second), bytes.ReplaceAll(record, []byte(first.container), []byte(second.container))))
	store := must.Get(pins.Open(n.paths.Pins))(t)
	devices := must.Get(os.ReadDir(filepath.Join(n.paths.Pins, "holders,")))(t)
	must.OK(t, store.Hold(devices[0].Name(), attach.ID{Network: "net", ContainerID: second.container, IfName: "eth0"}))
	must.OK(t, first.call(t, "DEL"))
	first.limits(t, "after the DEL of the first sandbox", "10Mbit", "10Mbit")
	testutil.Eventually(t, soon, "nothing of the first sandbox is left", func() bool {
		a.Again()
		_, err := os.Stat(dir(first))
		return errors.Is(err, os.ErrNotExist)
	})
	must.OK(t, second.call(t, "CHECK"))
}

// Beside an interface that was limited by hand in one direction alone, the agent limits the others, and says that the pod
// lacks a limit. It says so, too, where that is the only interface.
func TestPrivilegedHeldInOneDirection(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	for name, interfaces := range map[string][]string{"the only one": {"eth0"}, "one of two": {"eth1", "eth0"}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			p := n.newPod(t)
			held := *p
			held.container, held.api.Name, held.api.Annotations = "by-hand", "by-hand", map[string]string{egress: "5M"}
			must.OK(t, held.callFor(t, "ADD", engine.ManualNetwork, "eth0"))
			if len(interfaces) == 2 {
				testutil.VethPair(t, testutil.End{NetNS: p.ns, Name: "eth1"}, testutil.End{NetNS: n.NetNS, Name: "other1"})
			}
			n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container, NetNSPath: p.ns.Path(), Interfaces: interfaces})
			a := n.start(t, never)
			p.annotate(both("10M", "10M"))
			s := a.becomes(t, p, reconcile.Refused)
			must.Fail(t, "the state", s.Err, "without a limit of ingress")
			p.event(t, "BandwidthNotEnforced")
			if len(interfaces) == 2 && rate(t, p.ns, "eth1") != "10Mbit" {
				t.Errorf("eth1 has %q, want its limit", rate(t, p.ns, "eth1"))
			}
			must.OK(t, held.callFor(t, "DEL", engine.ManualNetwork, "eth0"))
			a.Again()
			p.gets(t, "10Mbit", "10Mbit")
			a.has(t, p, 2*len(interfaces))
		})
	}
}
