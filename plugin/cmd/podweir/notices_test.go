// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// noticeRate is the limit of both directions: 100 kB/s, with a bucket of some 9 kB.
const noticeRate = "800k"

// noticed is a node with one pod that a runtime's ADD has limited.
type noticed struct {
	*cli
	conf map[string]any
	// container is the sandbox, path that of its namespace, name that of the pod.
	container, path, name string
}

func newNoticed(t *testing.T, more map[string]any) *noticed {
	t.Helper()
	n := starting(newCLI(t), more)
	must.OK(t, n.verb(t, "ADD"))
	return n
}

// starting is a node with a pod before its ADD.
func starting(c *cli, more map[string]any) *noticed {
	n := &noticed{cli: c, container: "c1", name: "web", conf: map[string]any{
		"cniVersion": "1.1.0", "name": "net", "type": "podweir-cni", "onError": "closed",
		"egressRate": noticeRate, "ingressRate": noticeRate,
		"capabilities": map[string]any{"bandwidth": true, netconf.PodAnnotationsCapability: true}, "prevResult": map[string]any{"cniVersion": "1.1.0"},
	}}
	n.path = n.pod.Path()
	maps.Copy(n.conf, more)
	return n
}

// verb runs a verb of the plugin; the error has its details.
func (n *noticed) verb(t *testing.T, verb string) error {
	t.Helper()
	stdin := must.Get(json.Marshal(n.conf))(t)
	var stdout, log bytes.Buffer
	p := cni.Plugin{Stdout: &stdout, Stderr: &log, Paths: engine.Paths{Pins: n.pins, Run: n.run}}
	f := p.Funcs()
	run := map[string]func(*skel.CmdArgs) error{"ADD": f.Add, "CHECK": f.Check, "DEL": f.Del}[verb]
	args := &skel.CmdArgs{
		ContainerID: n.container, Netns: n.path, IfName: "eth0", StdinData: stdin,
		Args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + n.name,
	}
	err := n.node.Do(func() error { return run(args) })
	if e, ok := errors.AsType[*types.Error](err); ok {
		return fmt.Errorf("%s: %s", e.Msg, e.Details)
	}
	return err
}

// What becomes of a flood in one direction.
const (
	limited, unlimited, outage = "limited", "unlimited", "outage"
)

// flood sends 200 kB at once and says what became of them within 150 ms, in which
// the limit lets some 25 kB pass.
func (n *noticed) flood(t *testing.T, toPod bool, packetBytes int) string {
	t.Helper()
	receiver, sender, addr := n.node, n.pod, "10.78.0.1"
	if toPod {
		receiver, sender, addr = n.pod, n.node, "10.78.0.2"
	}
	to := receiver.ListenUDP(t, addr)
	from := sender.DialUDP(t, to.LocalAddr().String())
	got := make(chan int)
	const window, quiet, all = 150 * time.Millisecond, 250 * time.Millisecond, 200_000
	start := time.Now()
	go func() {
		b, soon, late := make([]byte, 65536), 0, 0
		for {
			_ = to.SetReadDeadline(time.Now().Add(quiet))
			size, _, err := to.ReadFrom(b)
			switch {
			case err != nil:
				if soon == 0 {
					soon = late // a machine that stood still
				}
				got <- soon
				return
			case time.Since(start) < window:
				soon += size
			default:
				late += size
			}
		}
	}()
	packet := make([]byte, packetBytes)
	for sent := 0; sent < all; sent += packetBytes {
		_, _ = from.Write(packet) // what a queue refuses is lost
	}
	switch n := <-got; {
	case n == 0:
		return outage
	case n <= all*2/5:
		return limited
	default:
		return unlimited
	}
}

// both says what becomes of floods, egress first.
func (n *noticed) both(t *testing.T, packetBytes int) string {
	t.Helper()
	return n.flood(t, false, packetBytes) + ", " + n.flood(t, true, packetBytes)
}

// becomes says what becomes of floods, egress first. A machine that stood still makes a
// flood look like another: what is not wanted counts when it was seen three times.
func (n *noticed) becomes(t *testing.T, packetBytes int, want string) (got string) {
	t.Helper()
	for range 3 {
		if got = n.both(t, packetBytes); got == want {
			break
		}
	}
	return got
}

// say is what a command prints, its error included.
func (n *noticed) say(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.do(t, args...)
	if err != nil {
		out += "error: " + err.Error()
	}
	return out
}

// findings are the codes of the doctor's checks about attachments that do not hold.
func (n *noticed) findings(t *testing.T) string {
	t.Helper()
	out, _ := n.do(t, "doctor", "--root", t.TempDir(), "-o", "json")
	var rep doctor.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var all []string
	for _, f := range rep.Checks {
		if about := strings.HasPrefix(f.Code, "PW6") || slices.Contains([]string{"PW501", "PW505", "PW506"}, f.Code); about && f.Status != doctor.OK && f.Status != doctor.Skip {
			all = append(all, f.Code)
		}
	}
	return strings.Join(all, " ")
}

func TestPrivilegedNotices(t *testing.T) {
	testutil.RequireRoot(t)
	for _, s := range notices() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // a node each, which mostly waits
			if !slices.Contains(s.needs, "prio") {
				mark.NightlyKernels(t, "the states take an emulated processor eight to ten minutes")
			}
			for _, what := range s.needs {
				if what != "tcx" {
					testutil.RequireQdisc(t, what)
				} else if !testutil.HaveTCX() {
					testutil.SkipFeature(t, what)
				}
			}
			if s.noTCX != "" && !testutil.HaveTCX() {
				s.doctor = s.noTCX
			}
			n := newNoticed(t, s.conf)
			s.make(t, n)
			n.judge(t, &s)
		})
	}
}

func (n *noticed) judge(t *testing.T, s *notice) {
	t.Helper()
	size := s.packetBytes
	if size == 0 {
		size = 1000
	}
	truth := ""
	if s.truth != "" {
		truth = n.becomes(t, size, s.truth)
	}
	must.Be(t, "the truth", s.truth, truth)
	check := ""
	if err := n.verb(t, "CHECK"); err != nil {
		check = err.Error()
	}
	holds(t, "CHECK", check, s.check)
	holds(t, "status", n.say(t, "status", "-o", "wide"), s.status)
	must.Be(t, "doctor's findings", s.doctor, n.findings(t))
	holds(t, "repair --dry-run", n.say(t, "repair", "--dry-run"), s.dry)
	if s.truth != "" {
		must.Be(t, "the truth after a look", truth, n.becomes(t, size, truth))
	}
	holds(t, "repair", n.say(t, "repair"), s.repair)
	if s.after != "" {
		must.Be(t, "after repair the truth", s.after, n.becomes(t, size, s.after))
	}
	again := s.again
	if again == nil {
		again = []string{"0 with differences", "0 errors"}
	}
	holds(t, "a second repair", n.say(t, "repair"), again)
	holds(t, "status after repair", n.say(t, "status", "-o", "wide"), s.then)
}

// holds fails the test unless a text has each of the parts, and none of those that
// begin with "!". No parts means that it is empty.
func holds(t *testing.T, what, text string, parts []string) {
	t.Helper()
	if len(parts) == 0 && text != "" {
		t.Errorf("%s says %q, want nothing", what, text)
	}
	must.Have(t, what, text, parts...)
}

// renew puts another network namespace with an interface of the same name in the
// place of the pod's, as a runtime does that uses its names again.
func (n *noticed) renew(t *testing.T) {
	t.Helper()
	path := n.path
	n.pod.Run(t, "ip", "link", "del", "eth0")
	must.OK(t, unix.Unmount(path, unix.MNT_DETACH))
	fresh := testutil.NewNetNS(t)
	must.OK(t, unix.Mount(fresh.Path(), path, "none", unix.MS_BIND, ""))
	n.wire(t, fresh, "veth1")
	renewed := *n.pod
	renewed.NetNS, renewed.Handle = fresh.NetNS, fresh.Handle
	renewed.Name = filepath.Base(path)
	n.pod = &renewed
}

// namesake renames the pod's device and gives its name and addresses to another pair.
func (n *noticed) namesake(t *testing.T) {
	t.Helper()
	n.pod.Run(t, "ip", "link", "set", "eth0", "down") // on its own: before Linux 6.2 a device that is up cannot be renamed
	n.pod.Run(t, "ip", "link", "set", "eth0", "name", "old0")
	n.pod.Run(t, "ip", "addr", "flush", "dev", "old0")
	n.node.Run(t, "ip", "addr", "flush", "dev", "veth1")
	n.wire(t, n.pod, "veth2")
}

// wire makes a pair from the node to eth0 of a pod, with the addresses of both.
func (n *noticed) wire(t *testing.T, pod *testutil.NetNS, host string) {
	t.Helper()
	n.node.Run(t, "ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", pod.Name)
	pod.Run(t, "ip", "addr", "add", "10.78.0.2/24", "dev", "eth0")
	pod.Run(t, "ip", "link", "set", "eth0", "up")
	n.node.Run(t, "ip", "addr", "add", "10.78.0.1/24", "dev", host)
	n.node.Run(t, "ip", "link", "set", host, "up")
}

// end takes away the pod's namespace, with what it has by then, as a runtime does that calls no DEL.
func (n *noticed) end(t *testing.T) {
	t.Helper()
	_ = n.pod.Command(t, "ip", "link", "del", "eth0").Run()
	must.OK(t, unix.Unmount(n.path, unix.MNT_DETACH))
}

// moveIn has the pod move its device to another namespace of its own.
func (n *noticed) moveIn(t *testing.T) {
	t.Helper()
	inner := testutil.NewNetNS(t)
	n.pod.Run(t, "ip", "link", "set", "eth0", "netns", inner.Name)
	inner.Run(t, "ip", "addr", "add", "10.78.0.2/24", "dev", "eth0")
	inner.Run(t, "ip", "link", "set", "eth0", "up")
	n.pod = inner
}

// takeNumbers ends the pod without DEL, and gives the numbers of both ends of its interface to
// an uplink of the node's and its peer.
func (n *noticed) takeNumbers(t *testing.T) (peer *testutil.NetNS) {
	t.Helper()
	host, pod := n.node.Interface(t, "veth1").Index, n.pod.Interface(t, "eth0").Index
	n.end(t)
	peer = testutil.NewNetNS(t)
	n.node.Run(t, "ip", "link", "add", "uplink", "index", strconv.Itoa(host), "type", "veth",
		"peer", "name", "eth0", "index", strconv.Itoa(pod), "netns", peer.Name)
	return peer
}

// add is the runtime's ADD once more.
func (n *noticed) add(t *testing.T) {
	t.Helper()
	must.OK(t, n.verb(t, "ADD"))
}

// replaceRecord puts text in the place of the pod's record.
func (n *noticed) replaceRecord(t *testing.T, text string) {
	t.Helper()
	must.OK(t, datapath.WriteRecord(filepath.Join(n.pins, "net", "c1,eth0", "eth0"), []byte(text)))
}

// loseRecord removes the pins of all attachments, not what they share.
func (n *noticed) loseRecord(t *testing.T) {
	t.Helper()
	must.OK(t, os.RemoveAll(filepath.Join(n.pins, "net")))
}

// mountAnew puts an empty bpffs over the one that has the pins.
func (n *noticed) mountAnew(t *testing.T) {
	t.Helper()
	dir := filepath.Dir(n.pins)
	must.OK(t, unix.Mount("bpf", dir, "bpf", 0, "mode=0700"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	makePins(t, n.pins)
}

var update = flag.Bool("update", false, "write docs/reference/what-podweir-notices.md")

const noticesPage = "../../../docs/reference/what-podweir-notices.md"

// besideOthers begins the part of the page that is written by hand.
const besideOthers = "\n## What others on a node do\n"

// TestNoticesPage: the first part of the page is made from the states that
// TestPrivilegedNotices makes and judges.
func TestNoticesPage(t *testing.T) {
	got := must.Get(os.ReadFile(noticesPage))(t)
	_, others, ok := strings.Cut(string(got), besideOthers)
	if !ok {
		t.Fatalf("%s lacks the heading %q", noticesPage, strings.TrimSpace(besideOthers))
	}
	want := renderNotices(notices()) + besideOthers + others
	if *update {
		must.OK(t, os.WriteFile(noticesPage, []byte(want), 0o644))
		got = []byte(want)
	}
	must.Match(t, fmt.Sprintf("%s is not what -update writes", noticesPage), want, string(got))
}

func renderNotices(all []notice) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# What podweir notices

States of a limited pod, and what each command says of them. A test makes each of these %d states, sends a flood in both directions,
runs every command, repairs, sends the floods again, and repairs once more: a second repair finds nothing to do. This page is
written from that test: `+"`go test ./plugin/cmd/podweir -run TestNoticesPage -update`"+`. It runs on Linux 6.1, 6.12 and
the newest, each state where the kernel has what it needs. The agent does what `+"`podweir repair`"+` does, by itself.

Traffic is what becomes of a flood: egress first, then ingress. *Limited* means that the limit holds, *outage* that nothing passes.
Quotes are parts of what the command prints. "In order" means that no difference and no error is shown. Codes are those of
[podweir doctor](doctor/README.md).

*Degraded* is enforced in another way than configured; every repair, ADD and pass of the agent tries that again.

| state | traffic | CHECK | status | doctor | repair | afterwards |
| --- | --- | --- | --- | --- | --- | --- |
`, len(all))
	for i := range all {
		s := &all[i]
		check := "passes"
		if len(s.check) > 0 {
			check = quotes(s.check)
		}
		codes := orDash(s.doctor)
		if s.noTCX != "" {
			codes += " (without TCX: " + s.noTCX + ")"
		}
		fmt.Fprintf(&b, "| %s%s | %s | %s | %s | %s | %s | %s |\n", s.name, confOf(s), orDash(s.truth), check, quotes(s.status),
			codes, quotes(s.repair), afterwards(s))
	}
	return b.String()
}

// confOf is what a state has beside the rates, and what it needs of the kernel.
func confOf(s *notice) string {
	var all []string
	for _, key := range []string{"ingressPlace", "egressQueue", "ingressQueue", "egressCeiling", "hostHook", "policy", "namespaceRate"} {
		if v, ok := s.conf[key]; ok {
			all = append(all, fmt.Sprintf("`%s: %v`", key, v))
		}
	}
	for _, what := range s.needs {
		all = append(all, "needs `"+what+"`")
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// afterwards is what traffic and status are after the repair, "in order" if both are.
func afterwards(s *notice) string {
	traffic, status := orDash(s.after), quotes(s.then)
	if traffic == "limited, limited" && status == "in order" {
		return status
	}
	return traffic + "; " + status
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// quotes shows the parts that are said.
func quotes(parts []string) string {
	var all []string
	for _, p := range parts {
		switch {
		case p == "default/web" && len(parts) > 1:
			all = append(all, "in order")
		case p == "0 with differences":
			all = append(all, "nothing to do")
		case p == "error", p == "0 errors", strings.HasPrefix(p, "!"):
		default:
			all = append(all, `"`+strings.TrimSuffix(p, " default/web")+`"`) // each state's pod
		}
	}
	return orDash(strings.Join(all, ", "))
}
