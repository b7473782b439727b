// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/examine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// wholeNode is a node on which everything is in order: podweir is in the chain of a primary
// CNI, containerd and the kubelet run. Its kernel side is real, in namespaces; /proc of its
// root directory and its container runtime are doubles.
type wholeNode struct {
	*cli
	*testNode
}

// files of a node whose /proc shows a kubelet and containerd.
var wholeFiles = map[string]string{
	"proc/1/mounts":                    "bpf /sys/fs/bpf bpf rw,nosuid,mode=700 0 0\n",
	"proc/1/net/unix":                  "Num RefCount Protocol Flags Type St Inode Path\n0: 00000002 00000000 00010000 0001 01 1 /run/containerd/containerd.sock\n",
	"proc/2/comm":                      "kubelet\n",
	"proc/3/comm":                      "containerd\n",
	"proc/sys/net/core/bpf_jit_enable": "1\n",
	"proc/sys/net/core/bpf_jit_harden": "0\n",
	"opt/cni/bin/ptp":                  "x",
}

func newWholeNode(t *testing.T) *wholeNode {
	t.Helper()
	c := newCLI(t)
	n := &wholeNode{cli: c, testNode: newTestNodeIn(t, c.node, c.pins, c.run)}
	n.runtime.Release = "1.7.29" // one that reads no drop-ins: podweir is in the chain
	const plugin = "podweir-cni"
	n.plugin = plugin
	must.Files(t, n.root, wholeFiles)
	must.Files(t, n.root, map[string]string{plugin: plugin})
	must.OK(t, os.MkdirAll(filepath.Join(n.root, "proc/sys/kernel"), 0o755))
	n.write(t, "proc/sys/kernel/osrelease", release())
	// What is in /sys/class/net depends on the namespace of whoever mounts it.
	sys := filepath.Join(n.root, "sys")
	must.OK(t, errors.Join(os.Mkdir(sys, 0o700), n.node.Do(func() error { return unix.Mount("sysfs", sys, "sysfs", unix.MS_RDONLY, "") })))
	t.Cleanup(func() { _ = unix.Unmount(sys, unix.MNT_DETACH) })
	n.must(t, "install", "--root", n.root, "--binary", filepath.Join(n.root, plugin))
	return n
}

// release is as uname -r gives it.
func release() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // it fails for a bad address alone
	return unix.ByteSliceToString(u.Release[:])
}

// often does something again and again until the test ends.
func often(t *testing.T, pause time.Duration, do func()) {
	t.Helper()
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				do()
			}
		}
	})
	t.Cleanup(func() { close(stop); group.Wait() })
}

// TestPrivilegedFullNode: on a node with 110 busy pods, five of which are broken, each in
// its own way, status, doctor and top fit a screen and name all five.
func TestPrivilegedFullNode(t *testing.T) {
	mark.Nightly(t, "110 pods take a quarter of a minute")
	mark.Slow(t, "it makes 110 pods")
	testutil.RequireRoot(t)
	const pods = 110
	n := newWholeNode(t)
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
	for _, ns := range spaces {
		busy(t, ns)
	}
	must.Have(t, "status before the faults", n.screen(t, "status"), fmt.Sprintf("All %d pods", pods))

	spaces[7].Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	n.node.Run(t, "tc", "qdisc", "replace", "dev", "veth31", "root", "pfifo")
	spaces[58].Run(t, "ip", "link", "set", "eth0", "mtu", "20000")
	n.node.Run(t, "tc", "qdisc", "del", "dev", "veth80", "clsact")
	n.spoil(t, "sandbox-101")
	broken := []string{"default/pod-7", "default/pod-31", "default/pod-58", "default/pod-80"}
	for command, sees := range map[string]string{
		"status": "105 of 110 pods are limited as they should be; 5 are not", "doctor": "PW602", "top --count 1 --interval 1s": "problems: 5",
	} {
		out := n.screen(t, command)
		words := strings.FieldsFunc(out, func(r rune) bool { return unicode.IsSpace(r) || r == ':' || r == ',' })
		unread := "net/sandbox-101"
		if command == "doctor" { // which asks the runtime whose sandbox that is
			unread = "default/pod-101"
		}
		for _, pod := range append(slices.Clip(broken), unread) {
			if !slices.Contains(words, pod) {
				t.Errorf("podweir %s does not name %s:\n%s", command, pod, out)
			}
		}
		must.Have(t, command, out, sees)
	}
}

// busy sends from a pod until the test ends: 120 kbit/s, more than an idle pod has.
func busy(t *testing.T, ns *testutil.NetNS) {
	t.Helper()
	s := newSender(t, ns, "eth0")
	often(t, 100*time.Millisecond, func() { s.send(1) })
}

// While 30 pods start, the agent's doctor finds nothing wrong with those that are being
// made.
func TestPrivilegedRollout(t *testing.T) {
	testutil.RequireRoot(t)
	const pods = 30
	n := newWholeNode(t)
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
func (n *wholeNode) doubts(t *testing.T) []string {
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

// screen runs a command and returns what a reader sees of it on a screen of 80 columns and
// 24 lines. All of it fits there, but for the rows of top: a terminal scrolls through them,
// with a line for the keys.
func (n *wholeNode) screen(t *testing.T, command string) string {
	t.Helper()
	args := strings.Fields(command)
	if args[0] == "doctor" {
		args = append(args, "--root", n.root)
	}
	out, err := n.do(t, args...)
	t.Logf("podweir %s ends with %v", command, err)
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for _, l := range lines {
		must.AtMost(t, "podweir "+command+": columns of "+l, 80, len([]rune(l)))
	}
	const height = 24
	if args[0] == "top" {
		lines = lines[:min(len(lines), height-1)]
	}
	if len(lines) > height {
		t.Errorf("podweir %s: %d lines:\n%s", command, len(lines), out)
	}
	return strings.Join(lines, "\n")
}

// spoil has another release write the record of a pod.
func (n *wholeNode) spoil(t *testing.T, container string) {
	t.Helper()
	pins := must.Len(t, "the records of "+container, 1, must.Get(filepath.Glob(filepath.Join(n.cli.pins, "*", container+",eth0", "eth0")))(t))
	must.OK(t, datapath.WriteRecord(pins[0], []byte(`{"version":99}`)))
}
