// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/examine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/short"
)

// TestPrivilegedFullNode: on a node with 110 pods, five of which are broken, each in its
// own way, status, doctor and top fit a screen and name all five. How long they take
// is logged.
func TestPrivilegedFullNode(t *testing.T) {
	short.LeaveOut(t, "it makes 110 pods")
	testutil.RequireRoot(t)
	const pods = 110
	n := newNightNode(t, &nightCase{})
	const first = 2 // the node has a veth1
	spaces := map[int]*testutil.NetNS{}
	for i := first; i < first+pods; i++ {
		spaces[i] = n.testNode.pod(t, i, map[string]string{"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "20M"})
	}
	a := n.start(t)
	a.until(t, 3*time.Minute, "all pods are shaped", func() (bool, string) {
		have := a.outcomes("attached")
		return have == pods, fmt.Sprintf("%d of %d pods are", have, pods)
	})
	a.end() // or it would mend what follows
	whole := n.screen(t, "status")
	if want := fmt.Sprintf("All %d pods", pods); !strings.Contains(whole, want) {
		t.Errorf("status before the faults does not say %q:\n%s", want, whole)
	}

	spaces[7].Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	n.node.Run(t, "tc", "qdisc", "replace", "dev", "veth31", "root", "pfifo")
	spaces[58].Run(t, "ip", "link", "set", "eth0", "mtu", "20000")
	n.node.Run(t, "tc", "qdisc", "del", "dev", "veth80", "clsact")
	n.spoil(t, "sandbox-101")
	broken := []string{"default/pod-7", "default/pod-31", "default/pod-58", "default/pod-80", "sandbox-101"}
	for _, command := range []string{"status", "doctor", "top --count 1 --interval 1s"} {
		out := n.screen(t, command)
		for _, pod := range broken {
			if !strings.Contains(out, pod) {
				t.Errorf("podweir %s does not name %s:\n%s", command, pod, out)
			}
		}
	}
}

// While 30 pods start, the agent's doctor finds nothing wrong with those that are being
// made.
func TestPrivilegedRollout(t *testing.T) {
	testutil.RequireRoot(t)
	const pods = 30
	n := newNightNode(t, &nightCase{})
	a := n.start(t)
	started := make(chan struct{})
	looked := make(chan []string)
	go func() {
		var found []string
		looks := 0
		for begun := true; begun; looks++ {
			select {
			case <-started:
				begun = false
			default:
			}
			found = append(found, n.doubts(t)...)
		}
		t.Logf("looked %d times", looks)
		looked <- found
	}()
	for i := 2; i < 2+pods; i++ { // the node has a veth1
		n.testNode.pod(t, i, map[string]string{"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "20M"})
	}
	a.until(t, 2*time.Minute, "all pods are shaped", func() (bool, string) {
		have := a.outcomes("attached")
		return have == pods, fmt.Sprintf("%d of %d pods are", have, pods)
	})
	close(started)
	for _, doubt := range <-looked {
		t.Error(doubt)
	}
}

// doubts are what the agent's doctor finds of attachments that it does not find of a
// healthy node.
func (n *nightNode) doubts(t *testing.T) []string {
	t.Helper()
	node := examine.Node{Paths: engine.Paths{Pins: n.cli.pins, Run: n.cli.run}, Root: n.root, Young: status.Young}
	var rep *doctor.Report
	_ = n.node.Do(func() error {
		rep = node.Doctor(t.Context(), detect.Options{}, doctor.Options{})
		return nil
	})
	var all []string
	for i := range rep.Checks {
		c := &rep.Checks[i]
		if about := c.Code == "PW501" || c.Code == "PW505" || c.Code == "PW602" || c.Code == "PW608"; about && c.Status != doctor.OK && c.Status != doctor.Skip {
			all = append(all, c.Code+": "+c.Seen)
		}
	}
	return all
}

// screen runs a command and returns what it prints, which fits a screen of 80 columns
// and 40 lines.
func (n *nightNode) screen(t *testing.T, command string) string {
	t.Helper()
	args := strings.Fields(command)
	if args[0] == "doctor" {
		args = append(args, "--root", n.root)
	}
	began, used := time.Now(), processorTime(t)
	out, err := n.do(t, args...)
	t.Logf("podweir %s took %v, of a processor %v, and ends with %v", command,
		time.Since(began).Round(time.Millisecond), (processorTime(t) - used).Round(time.Millisecond), err)
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for _, l := range lines {
		if len([]rune(l)) > 80 {
			t.Errorf("podweir %s: a line of %d columns: %s", command, len([]rune(l)), l)
		}
	}
	if len(lines) > 40 {
		t.Errorf("podweir %s: %d lines:\n%s", command, len(lines), out)
	}
	return out
}

// spoil has another release write the record of a pod.
func (n *nightNode) spoil(t *testing.T, container string) {
	t.Helper()
	pins, err := filepath.Glob(filepath.Join(n.cli.pins, "*", container+",eth0", "eth0"))
	if err != nil || len(pins) != 1 {
		t.Fatalf("records of %s: %v, %v, want one", container, pins, err)
	}
	if err := datapath.WriteRecord(pins[0], []byte(`{"version":99}`)); err != nil {
		t.Fatal(err)
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
