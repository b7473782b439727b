// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// never is a pass that a test does not come to: what it sees was an event.
const never = time.Hour

// A pod that ran before podweir came gets its limits, counted by its own
// queues, and the runtime's DEL finds what the agent made.
func TestPrivilegedPodThatRanBefore(t *testing.T) {
	n := newNode(t)
	p, other := n.newPod(t), n.newPod(t)
	p.annotate(both("10M", "20M"))
	other.annotate(nil)
	a := n.start(t, never)
	p.gets(t, "10Mbit", "20Mbit")
	s := a.has(t, p, 2)
	if len(s.Limits) != 2 || s.UID != p.api.UID || s.Limits[0].Rate != 10_000_000 || s.Limits[1].Rate != 20_000_000 ||
		s.Limits[0].Interface.PodName != "eth0" || !s.Limits[0].CapHolds || s.Duration <= 0 {
		t.Errorf("state %+v", s)
	}
	a.becomes(t, other, reconcile.Unlimited)
	other.limits(t, "of a pod without a limit", "", "")
	// What is sent passes our queue and our program.
	const packets = 50
	p.send(t, packets)
	att := p.attachment(t)
	must.Be(t, "attached by", apply.ByAgent, att.By)
	if len(att.Drift) != 0 || att.Directions[0].Qdisc.Packets < packets {
		t.Errorf("after %d packets: %+v", packets, att.Directions[0])
	}
	var counted uint64
	for _, c := range att.Directions[0].Counters {
		counted += c.Packets
	}
	must.AtLeast(t, "packets that the program counted", packets, counted)
	// For podweir-cni it is as if its ADD had made it.
	must.OK(t, p.call(t, "CHECK"))
	// The DEL of a pod that ends, while its sandbox still counts as ready.
	p.api.Deleting = true
	n.api.Put(p.api)
	testutil.Eventually(t, soon, "the agent knows", func() bool {
		known, ok := a.pods.Pod(p.api.UID)
		return ok && known.Ending
	})
	// A look that began before it knew would not see the end coming.
	since := time.Now()
	p.annotate(both("10M", "21M"))
	testutil.Eventually(t, soon, "the agent looks again", func() bool { return a.state(p).At.After(since) })
	must.OK(t, p.call(t, "DEL"))
	a.becomes(t, p, reconcile.Waiting)
	p.unlimited(t, "after DEL")
}

// send sends small packets out of the pod.
func (p *pod) send(t *testing.T, packets int) {
	t.Helper()
	conn := p.ns.DialUDP(t, p.node.ListenUDP(t, p.gateway).LocalAddr().String())
	for range packets {
		must.OK(t, must.Err(conn.Write(make([]byte, 100))))
	}
}

func TestPrivilegedAnnotationChangedLive(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	a := n.start(t, never)
	a.has(t, p, 2) // the queues come first, then the programs
	p.gets(t, "10Mbit", "20Mbit")
	before := p.programs(t)

	p.annotate(both("30M", "40M"))
	p.gets(t, "30Mbit", "40Mbit")
	must.Be(t, "programs and queues after a new rate", before, p.programs(t))

	// A value that cannot be read: the owner is told which, and what was there
	// stays. The other direction follows.
	p.annotate(both("25M", "fast"))
	s := a.becomes(t, p, reconcile.Invalid)
	p.told(t, "BandwidthInvalid", `annotation kubernetes.io/ingress-bandwidth: "fast" is not accepted, want `, "the limit from before stays")
	if s.Err == nil || len(s.Limits) != 2 || s.Limits[1].Rate != 40_000_000 {
		t.Errorf("state %+v, want an error and the limits from before", s)
	}
	p.gets(t, "25Mbit", "40Mbit")
	// ... also when it is mended meanwhile.
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	p.gets(t, "25Mbit", "40Mbit")

	p.annotate(map[string]string{egress: "5M"})
	p.gets(t, "5Mbit", "")
	p.annotate(nil)
	p.gets(t, "", "")
	a.has(t, p, 0)
	p.unlimited(t, "without an annotation")
}

// A network that is renamed while pods run changes nothing for them: they follow their
// annotations, and nobody makes another attachment.
func TestPrivilegedNetworkIsRenamed(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	must.OK(t, p.call(t, "ADD"))
	for _, verb := range []string{"CHECK", "DEL"} {
		must.OK(t, p.callFor(t, verb, "renamed", "eth0"))
	}
	p.gets(t, "", "")
	must.OK(t, p.call(t, "ADD"))
	n.configure("name", "renamed")
	a := n.start(t, never)
	p.annotate(both("30M", "40M"))
	p.gets(t, "30Mbit", "40Mbit")
	must.OK(t, p.callFor(t, "ADD", "renamed", "eth0"))
	p.annotate(both("30M", "fast"))
	a.becomes(t, p, reconcile.Invalid)
	p.annotate(both("35M", "fast"))
	p.gets(t, "35Mbit", "40Mbit")
	node := n.open(t)
	defer node.Close()
	must.Len(t, "attachments", 1, must.Get(node.List())(t))
	p.annotate(nil)
	p.gets(t, "", "")
}

// The agent limits what a stand-in stands for, too, with its own look at the pod, and what was renamed before that.
func TestPrivilegedStandInAdopted(t *testing.T) {
	for _, standIn := range []string{"ip tuntap add dev eth0 mode tap", "true"} {
		n := newNode(t)
		p := n.newPod(t)
		p.annotate(both("10M", "20M"))
		n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container, NetNSPath: p.ns.Path(), Interfaces: []string{"eth0"}})
		p.ns.Run(t, "sh", "-ec", "ip link set eth0 down; ip link set eth0 name eth0-nic; ip link set eth0-nic up; "+standIn)
		a := n.start(t, never)
		a.has(t, p, 2)
		must.Be(t, "rate of eth0-nic", "10Mbit", rate(t, p.ns, "eth0-nic"))
	}
}

func TestPrivilegedBadSettingKeepsTheLimit(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	asked := both("10M", "20M")
	asked["podweir.io/policy"], asked["podweir.io/egress-burst"] = "bogus", "0"
	p.annotate(asked)
	n.start(t, never)
	p.gets(t, "10Mbit", "20Mbit")
	e := p.event(t, "BandwidthSettingIgnored")
	const want = `annotation podweir.io/policy: "bogus" is not accepted, want one of strict, elephants, flat; ` +
		`annotation podweir.io/egress-burst: "0" is not accepted, want a burst of 1 to 4G bits, written as a Kubernetes quantity in bits, ` +
		`or a time from 1µs to 10s that is not more at the rate; ` + "the limit is enforced with the node's own setting"
	must.Be(t, "the event", want, e.Message)
}

func TestPrivilegedHostNetwork(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.api.HostNetwork = true
	asked := both("10M", "20M")
	asked["podweir.io/ingress-rate"] = "5M"
	p.annotate(asked)
	a := n.start(t, never)
	p.told(t, "BandwidthHostNetwork", `kubernetes.io/egress-bandwidth "10M"`, `podweir.io/ingress-rate "5M"`, "is not shaped")
	must.Be(t, "the pod asks for egress", true, slices.Contains(a.state(p).Asked, terms.Egress))
	a.becomes(t, p, reconcile.HostNetwork)
	rep := must.Get(status.Recorded(n.paths))(t)
	if seen := rep.View(time.Now()); len(seen.Pods) != 1 || seen.Pods[0].State != view.HostNetwork || !strings.Contains(seen.Pods[0].Cause, `"5M"`) || len(seen.Broken()) != 0 {
		t.Errorf("status has %+v, want the pod, and not as a failure", seen.Pods)
	}
	p.annotate(nil)
	a.becomes(t, p, reconcile.Unlimited) // as the agent's own pod: until it was looked at, the agent is not ready
	must.Len(t, "unshaped pods without its annotations", 0, must.Get(status.Recorded(n.paths))(t).Unshaped)
	p.limits(t, "of a pod with hostNetwork", "", "")
}

// A pod that cannot be shaped runs on; its owner and status are told, until it
// can be.
func TestPrivilegedPodThatCannotBeShaped(t *testing.T) {
	n := newNode(t)
	n.configure("egressQueue", "tbf")
	p := n.newPod(t)
	n.withoutTCX(t)
	p.refuse(t)
	p.annotate(map[string]string{egress: "10M"})
	a := n.start(t, 200*time.Millisecond)
	a.becomes(t, p, reconcile.Refused)
	p.told(t, "BandwidthNotEnforced", "root qdisc is not podweir's: htb 7: on eth0")
	failures := func() int { f, _ := n.paths.Mail().Failures(); return len(f) }
	testutil.Eventually(t, soon, "a record of the failure", func() bool { return failures() == 1 })
	events := len(n.api.Events())
	p.accept(t)
	p.gets(t, "10Mbit", "")
	testutil.Eventually(t, soon, "no record of a failure", func() bool { return failures() == 0 })
	must.Be(t, "events for one failure that lasted", 1, events)
}

// A queue by name that is not available is policed, its owner is told, and it comes when
// it is available.
func TestPrivilegedQueueByNameIsTriedAgain(t *testing.T) {
	n := newNode(t)
	n.configure("egressQueue", "tbf")
	p := n.newPod(t)
	p.ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7:", "htb")
	p.annotate(map[string]string{egress: "10M"})
	a := n.start(t, 200*time.Millisecond)
	p.told(t, "BandwidthPoliced", "not the queue tbf", "root qdisc is not podweir's: htb 7: on eth0")
	if s := a.has(t, p, 1); s.Limits[0].Queue.String() != "none" || s.Limits[0].Rate != 10_000_000 {
		t.Errorf("state %+v, want 10M policed", s)
	}
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	p.gets(t, "10Mbit", "")
}

// On a node where nothing can be shaped, those who ask for a limit are told.
func TestPrivilegedNodeWithoutBPFFS(t *testing.T) {
	n := newNode(t)
	n.paths.Pins = filepath.Join(t.TempDir(), "podweir")
	p, other := n.newPod(t), n.newPod(t)
	p.annotate(both("10M", "20M"))
	other.annotate(nil)
	a := n.start(t, never)
	a.becomes(t, p, reconcile.Failed)
	a.becomes(t, other, reconcile.Unlimited)
	p.told(t, "BandwidthNotEnforced", n.paths.Pins, "mount -t bpf")
	must.Len(t, "events, of the pod with a limit", 1, n.api.Events())
	n.recorded(t, 1, 0, "mount -t bpf")
}

// The container runtime is away: what is shaped is kept, what is not waits, is told, and is
// known to run without its limit until it ends or the runtime answers.
func TestPrivilegedRuntimeIsAway(t *testing.T) {
	n := newNode(t)
	p, q, ends := n.newPod(t), n.newPod(t), n.newPod(t)
	p.annotate(both("10M", "20M"))
	must.OK(t, p.call(t, "ADD"))
	n.sandbox.fail(errAway)
	q.annotate(both("10M", "20M"))
	ends.annotate(both("10M", "20M"))
	a := n.start(t, never)
	a.becomes(t, q, reconcile.Failed)
	q.told(t, "BandwidthNotEnforced", errAway.Error())
	n.recorded(t, 2, 0, errAway.Error())
	n.api.Delete(ends.api.UID)
	n.recorded(t, 1, 0, errAway.Error())
	p.annotate(both("30M", "40M"))
	p.gets(t, "30Mbit", "40Mbit")
	n.sandbox.fail(nil)
	q.gets(t, "10Mbit", "20Mbit")
	n.recorded(t, 0, 0, "")
}

// The agent is in no packet's way: stopped it leaves everything, started it
// changes nothing.
func TestPrivilegedAgentStopsAndStarts(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	a := n.start(t, never)
	a.has(t, p, 2)
	p.gets(t, "10Mbit", "20Mbit")
	a.stop()
	before := p.programs(t)
	p.send(t, 10)
	if att := p.attachment(t); len(att.Drift) != 0 || att.Directions[0].Qdisc.Packets < 10 {
		t.Errorf("with the agent stopped: %+v", att)
	}
	b := n.start(t, never)
	b.becomes(t, p, reconcile.Shaped)
	must.Be(t, "programs and queues after a start", before, p.programs(t))
}

// withoutAPIServer is an agent that has no API server yet and looks after a pod
// that an ADD has shaped.
func withoutAPIServer(t *testing.T) (*node, *pod, *agent) {
	t.Helper()
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	must.OK(t, p.call(t, "ADD"))
	n.api.Fail(http.StatusServiceUnavailable)
	a := n.start(t, never)
	a.becomes(t, p, reconcile.Shaped)
	return n, p, a
}

// Without an API server the pods are kept as they are pinned; with one that is
// behind, too.
func TestPrivilegedAPIServerIsAway(t *testing.T) {
	n, p, a := withoutAPIServer(t)
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	p.gets(t, "10Mbit", "20Mbit")
	if s := a.state(p); s.UID != "" || s.Name != p.api.Name {
		t.Errorf("state %+v, want a pod that the API did not tell of", s)
	}
	p.annotate(both("30M", "40M"))
	n.api.Fail(0)
	p.gets(t, "30Mbit", "40Mbit")
	testutil.Eventually(t, soon, "one state of the pod, by its UID", func() bool {
		all := a.Snapshot()
		return len(all) == 1 && all[0].UID == p.api.UID
	})
}

// TestPrivilegedEndsWithoutDEL: under the delivery watch nobody calls DEL, and the runtime still knows the sandbox of a pod
// that the API server has no more. What is left of it goes with the pod, not with the next pass.
func TestPrivilegedEndsWithoutDEL(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	a := n.start(t, never)
	p.gets(t, "10Mbit", "20Mbit")
	a.has(t, p, 2)
	must.OK(t, unix.Unmount(p.ns.Path(), unix.MNT_DETACH))
	n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container})
	p.api.Deleting = true
	n.api.Put(p.api)
	a.becomes(t, p, reconcile.Waiting)
	n.api.Delete(p.api.UID)
	testutil.Eventually(t, soon, "the pins are gone", func() bool {
		_, err := os.Stat(filepath.Join(n.paths.Pins, "net"))
		return err != nil
	})
}

// What a DEL that never came left behind goes, but only when the runtime does
// not run the sandbox any more.
func TestPrivilegedSweep(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	must.OK(t, p.call(t, "ADD"))
	n.api.Delete(p.api.UID)
	pinned := func() bool { _, err := os.Stat(filepath.Join(n.paths.Pins, "net")); return err == nil }
	// The name goes: the file under the mount is left, as the runtime does it.
	must.OK(t, unix.Unmount(p.ns.Path(), unix.MNT_DETACH))
	a := n.start(t, 100*time.Millisecond)
	a.becomes(t, p, reconcile.Waiting)
	looks := a.state(p).At
	testutil.Eventually(t, soon, "a second look", func() bool { return a.state(p).At.After(looks) })
	if !pinned() {
		t.Fatal("the pins of a sandbox that runs are gone")
	}
	n.sandbox.drop(p.api.UID)
	testutil.Eventually(t, soon, "the pins are gone", func() bool { return !pinned() })
	testutil.Eventually(t, soon, "the state is gone", func() bool { return len(a.Snapshot()) == 0 })
	must.Be(t, "rate of the host's end", "", rate(t, n.NetNS, p.host.Name))
}

// ADD, CHECK and DEL come in between passes and changes of the annotation, for
// the same pod: what is left is what the last of them wants.
func TestPrivilegedBesideTheCommands(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	a := n.start(t, 10*time.Millisecond)
	for i := range 20 {
		p.annotate(both(fmt.Sprintf("%dM", 10+i), "20M"))
		must.OK(t, p.call(t, "ADD"))
		if i%2 == 1 {
			n.sandbox.drop(p.api.UID)
			must.OK(t, p.call(t, "DEL"))
			n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container, NetNSPath: p.ns.Path()})
		}
	}
	p.annotate(both("50M", "60M"))
	p.gets(t, "50Mbit", "60Mbit")
	a.becomes(t, p, reconcile.Shaped)
	must.Len(t, "drift", 0, p.attachment(t).Drift)
	must.OK(t, p.call(t, "CHECK"))
}
