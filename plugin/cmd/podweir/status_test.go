// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// broken is a report of pods that are not limited, each for another reason.
func broken() *status.Report {
	since := time.Unix(1_800_000_000, 0).UTC()
	id := func(c string) attach.ID { return attach.ID{Network: "net", ContainerID: c, IfName: "eth0"} }
	exceeded := mailbox.Unenforced{
		ID: id("c1"), Pod: "ns/web", Interface: "eth0", Limit: terms.Limit{Direction: terms.Name(terms.Egress), Rate: 10e6}, Reason: "exceeded", Since: since,
		Carried: 25e6, Likely: mailbox.Likely{Cause: mailbox.CauseError, What: "a process in the pod"},
	}
	held := exceeded
	held.ID, held.Pod, held.Reason, held.Held, held.Carried = id("c2"), "/", "tampered", true, 0
	return &status.Report{
		Schema: status.Schema,
		Attachments: []status.Attachment{
			{ID: id("c1"), Pod: "ns/web", Interface: attach.Interface{PodName: "eth0"}},
			{ID: id("c3"), Pod: "ns/db", Drift: []string{"egress build-queue: no root qdisc"}},
			{ID: id("c4"), Error: "unexpected end of JSON input"},
		},
		Failures:   []mailbox.Failure{{ID: id("c3"), Error: "no memory", Time: since}, {ID: id("c5"), Pod: "ns/new", Error: "no memory", Time: since}},
		Unenforced: []mailbox.Unenforced{exceeded, held},
		Overdue:    []mailbox.Unshaped{{Pod: "ns/late", Reason: mailbox.ReasonOverdue, Since: since, Error: "no sandbox"}},
		Unshaped: []mailbox.Unshaped{
			{Pod: "ns/bad", Reason: mailbox.ReasonInvalid, Since: since, Error: `"fast" is not accepted`},
			{Pod: "ns/new", Reason: "failed", Since: since, Error: "no memory"},
		},
	}
}

// Each pod that is not limited is named once, with its cause and what to do.
func TestStatusNamesEveryBrokenPod(t *testing.T) {
	t.Parallel()
	rep := broken()
	now := time.Unix(1_800_000_060, 0).UTC()
	rep.AgentLooked = now
	want := `0 of 7 pods are limited as they should be; 7 are not:
NOT LIMITED ns/bad since 2027-01-15T08:00:00Z (1 min)
  cause  "fast" is not accepted
  cure   correct what the cause names; an agent then sets the limit by itself;
         without an agent, recreate the pod
NOT LIMITED ns/db since 2027-01-15T08:00:00Z (1 min)
  cause  no memory; also differs: egress build-queue: no root qdisc
  cure   the agent tries again by itself; podweir doctor finds what prevents it
NOT LIMITED ns/late since 2027-01-15T08:00:00Z (1 min)
  cause  no sandbox
  cure   podweir explain PW610
NOT LIMITED ns/new since 2027-01-15T08:00:00Z (1 min)
  cause  no memory
  cure   the agent tries again by itself; podweir doctor finds what prevents it
EXCEEDED    ns/web since 2027-01-15T08:00:00Z (1 min)
  cause  egress of eth0 has a limit of 10 Mbit/s and carried 25 Mbit/s; likely
         cause: a process in the pod
  cure   podweir explain PW612
UNKNOWN     net/c4
  cause  its record cannot be read: unexpected end of JSON input
  cure   podweir doctor
TAMPERED    net/c2 since 2027-01-15T08:00:00Z (1 min)
  cause  its egress limit of 10 Mbit/s is taken away again and again, and holds;
         likely cause: a process in the pod
  cure   podweir explain PW612
`
	must.Match(t, "status", want, rep.View(now).Summary("this node", false))
	rep.Attachments = append(rep.Attachments, status.Attachment{ID: attach.ID{Network: "net", ContainerID: "c2", IfName: "eth0"}, Drift: []string{"egress build-queue: no root qdisc"}})
	must.Have(t, "a queue that is missing while it is fought for", rep.View(now).Summary("this node", false), "TAMPERED    net/c2 since", "!DIFFERS ")
	rep.AgentLooked = time.Time{}
	if text := rep.View(now).Summary("this node", false); !strings.Contains(text, "no agent runs here that would try again") ||
		strings.Count(text, "the agent tries again") != 1 { // of what an agent said
		t.Errorf("without an agent:\n%s", text)
	}
	rep.Keep(func(pod string) bool { return pod == "ns/db" })
	if len(rep.Attachments) != 1 || len(rep.Failures) != 1 || len(rep.Unenforced)+len(rep.Overdue)+len(rep.Unshaped) != 0 {
		t.Errorf("of ns/db %+v is left", rep)
	}
}

func TestStatusOfAShare(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]terms.Limit{
		"namespace: no agent divides: it keeps 25 Mbit/s of the 200 Mbit/s that the pods of its namespace have together on this node": {Share: 25e6},
		"namespace: observed only are the 200 Mbit/s that the pods of its namespace have together on this node":                       {Enforce: terms.Name(terms.EnforceObserve)},
		"namespace: it has no share of the 200 Mbit/s that the pods of its namespace have together on this node: the kernel has none": {NoShare: "the kernel has none", Enforce: terms.Name(terms.EnforceObserve)},
	} {
		var b bytes.Buffer
		l.Group = 200e6
		printDirection(&b, &status.Direction{Limit: l}, view.ShareOf("batch/one", &l, nil, "this node"))
		must.Have(t, "a share", b.String(), want+"\n")
		b.Reset()
		l.Group = 0
		printDirection(&b, &status.Direction{Limit: l}, view.ShareOf("batch/one", &l, nil, "this node"))
		must.Have(t, "a limit of no namespace", b.String(), "!namespace:")
	}
}

// Texts in JSON name podweir's commands as they run where they are read, as the table does.
func TestPrivilegedStatusInJSONNamesCommandsThatRun(t *testing.T) {
	testutil.RequireRoot(t)
	const run = "kubectl -n ns exec podweir-x -- podweir"
	t.Setenv(envRunBy, run)
	n := newNoticed(t, nil)
	n.must(t, "set", "--container", n.container, "--egress", "400k")
	n.end(t)
	out, _ := n.do(t, "status", "-o", "json")
	if !strings.Contains(out, run+" gc") || strings.Contains(strings.ReplaceAll(out, run+" gc", ""), "podweir gc") {
		t.Errorf("status says %s, want `%s gc`", out, run)
	}
}

// A node without podweir and a pod that is not there are errors in one line, with what was
// requested.
func TestPrivilegedStatusErrors(t *testing.T) {
	none := &cli{node: testutil.NewNetNS(t), pins: filepath.Join(testutil.BPFFS(t), "typo"), run: t.TempDir()}
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"top", "--count", "1"}, {"repair"}, {"gc"}, {"explain", "a/b"}, {"detach", "--container", "c"}} {
		_, err := none.do(t, args...)
		must.Fail(t, args[0], err, `--pins "`+none.pins+`": there is no such directory`)
	}
	for _, args := range [][]string{{"status", "--pod", "ns/none"}, {"status", "-o", "wide", "--broken", "--bad"}} {
		_, err := runPodweir(t, append(args, "--pins", filepath.Join(t.TempDir(), "none"), "--run", t.TempDir())...)
		must.Fail(t, args[0], err, "!\n")
	}
}

// gc on a node without a BPF file system removes nothing, and says that it saw nothing.
func TestGCSaysThatItSeesNothing(t *testing.T) {
	t.Setenv("PODWEIR_PINS", t.TempDir())
	_, log, err := execute(t, "gc")
	must.OK(t, err)
	must.Have(t, "gc", log, "looked at nothing", "mount -t bpf bpf /sys/fs/bpf")
}

// sendUDP sends packets of a size out of the pod, as fast as they go.
func (c *cli) sendUDP(t *testing.T, packets, size int) {
	t.Helper()
	conn := c.pod.DialUDP(t, "10.78.0.1:9")
	for range packets {
		_, _ = conn.Write(make([]byte, size)) // nobody listens: the next write may say so
	}
}

// explain says on the node, too, what the limits of a pod do, and what a code means.
func TestPrivilegedExplain(t *testing.T) {
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M")...)
	name := strings.Fields(c.must(t, "status", "-o", "wide"))[0]
	c.well(t, []string{"egress carries next to nothing of its limit of 10 Mbit/s", "egress of eth0 on this node, limit 10 Mbit/s, policy strict"}, "explain", name)
	if _, err := exec.LookPath("nft"); err == nil {
		c.node.Run(t, "nft", "add table inet filter; add chain inet filter entry { type filter hook input priority 0; policy drop; }")
		c.pod.Run(t, "nft", "add table inet f; add chain inet f out { type filter hook output priority 0; }; add rule inet f out udp dport 53 drop")
		c.well(t, []string{"silent nftables policy of chain entry in table inet filter may drop packets, and has no counter of its own", "of chain out in table inet f in the pod may drop packets"}, "explain", name)
	}
	c.node.Run(t, "ip", "link", "set", "veth1", "down")
	c.well(t, []string{"path veth1 is down", "!at the other end"}, "explain", name)
	c.node.Run(t, "ip", "link", "set", "veth1", "up", "mtu", "1400")
	c.well(t, []string{"path eth0 in the pod has an MTU of 1500, and its other end veth1 one of 1400"}, "explain", name)
	c.fails(t, []string{"no limit for pod ns/none on this node", "podweir status"}, "explain", "ns/none")
	c.fails(t, []string{"want NAMESPACE/POD or a code"}, "explain", "PW999")
	c.pod.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	c.broken(t, []string{"DIFFERS"}, "explain", name)
	must.OK(t, unix.Unmount(c.pod.Path(), unix.MNT_DETACH)) // the namespace has no path any more
	c.broken(t, []string{"UNKNOWN", "its other end veth1 one of 1400"}, "explain", name)
}

// status says for how much of the last minute a pod was at its limit, as its agent saw it;
// without one nothing is said of that, unless packets were dropped.
func TestPrivilegedStatusSaysHowLongALimitIsReached(t *testing.T) {
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M", "--ingress", "10M")...)
	wide := func(parts ...string) { t.Helper(); c.well(t, parts, "status", "-o", "wide") }
	wide("!at its limit")
	a := parse[status.Report](t, c, "status").Attachments[0]
	if d := a.Directions[0]; d.HeldShare != nil {
		t.Errorf("without an agent heldShare is %v", *d.HeldShare)
	}
	paths, since := engine.Paths{Run: c.run}, time.Now().UTC().Truncate(time.Second)
	must.OK(t, paths.Mail().RecordReached([]mailbox.Reached{
		{Limit: mailbox.Limit{ID: a.ID, Interface: "eth0", Direction: terms.Name(terms.Egress)}, Reached: terms.Reached{AtLimitSince: since, HeldShare: new(0.5)}},
		{Limit: mailbox.Limit{ID: a.ID, Interface: "eth0", Direction: terms.Name(terms.Ingress)}, Reached: terms.Reached{HeldShare: new(0.0)}},
	}))
	wide("at its limit: 50 % of the last minute, since "+since.Format(time.RFC3339), "at its limit: 0 % of the last minute")
	for i, want := range []float64{0.5, 0} {
		if d := parse[status.Report](t, c, "status").Attachments[0].Directions[i]; d.HeldShare == nil || *d.HeldShare != want {
			t.Errorf("beside an agent heldShare of %s is %v, want %v", d.Direction, d.HeldShare, want)
		}
	}
	paths.Mail().ForgetReached()
	// 2 MB in a moment are more than a queue of 10 Mbit/s holds.
	c.sendUDP(t, 2_000, 1_000)
	wide("at its limit: it was: ")
}

// A file under /run that is damaged takes nothing else from status: it is named, and a pod whose
// failure cannot be read is not limited.
func TestPrivilegedStatusOfDamagedFiles(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNoticed(t, nil)
	for name, wants := range map[string][]string{
		"past.json":                     {"The only pod with a limit is limited as it should be.", "What went past podweir before is not known: ", "past.json: unexpected end of JSON input. Remove that file"},
		"namespaces/default.json":       {"The only pod with a limit", "What new pods get by their namespaces is not known: rates of namespace default: "},
		"reached.json":                  {"The only pod with a limit", "How long limits have been reached is not known: "},
		"unenforced.json":               {"The only pod with a limit", "Whether the agent saw a limit that does not hold is not known: "},
		"failures/c9,eth0.json":         {"1 of 2 pods", "NOT LIMITED c9 cause it had no limit, and the record of why is damaged: remove /"},
		"failures/c9,eth0.json {}":      {"1 of 2 pods", "NOT LIMITED c9 cause it had no limit, and the record of why is damaged: remove /", "it says nothing cure"},
		"unshaped/u-1.json/a-directory": {"1 of 2 pods", "NOT LIMITED pod u-1 cause it had no limit, and the record of why is damaged: remove /"},
	} {
		name, text, _ := strings.Cut(name, " ")
		must.Files(t, n.run, map[string]string{name: cmp.Or(text, "[{")})
		if name == "unenforced.json" { // it counts while an agent watches
			must.OK(t, os.WriteFile(filepath.Join(n.run, "reached.json"), []byte("[]"), 0o600))
		}
		n.broken(t, wants, "status")
		if found := n.findings(t); strings.Contains(wants[0], "of 2") != strings.Contains(found, "PW601") || strings.Contains(found, "PW602") {
			t.Errorf("%s: doctor finds %q", name, found)
		}
		top, _, _ := strings.Cut(name, "/")
		must.OK(t, os.RemoveAll(filepath.Join(n.run, top)))
		_ = os.Remove(filepath.Join(n.run, "reached.json"))
	}
}

// A record of one of a pod's interfaces that cannot be read is one problem, and the pod's.
func TestPrivilegedStatusOfOneDamagedRecordOfTwo(t *testing.T) {
	testutil.RequireRoot(t)
	n := starting(newCLI(t), nil)
	n.path = filepath.Join("/var", n.path) // as containerd writes it
	testutil.VethPair(t, testutil.End{NetNS: n.pod, Name: "net1"}, testutil.End{NetNS: n.node, Name: "veth8"})
	n.conf["prevResult"] = map[string]any{"cniVersion": "1.1.0", "interfaces": []map[string]any{{"name": "eth0", "sandbox": n.path}, {"name": "net1", "sandbox": n.path}}}
	n.add(t)
	must.OK(t, datapath.WriteRecord(filepath.Join(n.pins, "net", "c1,eth0", "net1"), []byte("{")))
	n.broken(t, []string{"0 of 1 pods are limited as they should be; 1 is not: UNKNOWN default/web cause its record cannot be read: device net1: unknown record: unexpected end of JSON input", "!veth8"}, "status")
}

// What is left of a pod whose name another one has, as of a StatefulSet, is not that one.
func TestPrivilegedStatusOfAPodThatCameBack(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNoticed(t, nil)
	old := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: n.node, Name: "veth7"}, testutil.End{NetNS: old, Name: "eth0"})
	live := n.pod
	n.pod, n.path, n.container = old, old.Path(), "0123456789abcdef"
	must.OK(t, n.verb(t, "ADD"))
	n.end(t)
	n.pod = live
	n.broken(t, []string{"1 of 2 pods are limited as they should be; 1 is not:", "UNKNOWN default/web (container 0123456789ab) cause the pod is gone", "cure podweir gc"}, "status")
	n.must(t, "gc")
	n.must(t, "status")
}
