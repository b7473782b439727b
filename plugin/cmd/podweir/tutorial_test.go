// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	// otherTerminal stands before a block that the reader leaves running.
	otherTerminal = "<!-- leave it running -->"
	// notRun stands before a block that "make" runs, not this test.
	notRun = "<!-- not run by the page's test -->"
)

var consoleBlock = regexp.MustCompile("(?ms)^(<!-- [^\n]+ -->\n)?```console\n(.*?)^```$")

// TestPrivilegedTutorial types the commands of the tutorial, in new namespaces in
// place of the machine's, and looks for what the tutorial promises.
func TestPrivilegedTutorial(t *testing.T) {
	mark.NightlyKernels(t, "it compares rates, which an emulated processor does not have")
	testutil.RequireRoot(t)
	dir := t.TempDir()
	shell := newTutorialShell(t, dir)
	var said []string
	for _, block := range tutorialBlocks(t) {
		said = append(said, shell.run(t, block))
	}
	if len(said) != 10 {
		t.Fatalf("the tutorial has %d blocks to run, want 10: pod, server, its rate, limit, bulk, ping, status, top, set, cleanup", len(said))
	}
	must.AtLeast(t, "Mbit/s of the unshaped pod", 100, received(t, said[2]))
	must.Within(t, "Mbit/s of the shaped pod, 9.5 on the page", 9, 10, received(t, said[3]))
	must.AtMost(t, "ms of a ping beside bulk on average, since light flows go first", 5, averagePing(t, said[5]))
	must.Have(t, "status", said[6], "eth0", "10 Mbit/s", "heavy")
	must.Have(t, "set", said[8], "50 Mbit/s")
	// The transfer that goes on in the other terminal ends without its server.
	const list = "ls -d /run/podweir* /sys/fs/bpf/pod* /run/netns/* /tmp/weir* 2>/dev/null || true; ip -br link | grep weir || true; pgrep -a -r R,S,D iperf3 || true"
	var left string
	defer func() { t.Logf("left: %q", left) }()
	testutil.Eventually(t, 10*time.Second, "nothing is left", func() bool {
		left = shell.try(t, tutorialBlock{commands: list})
		return left == ""
	})
}

type tutorialBlock struct {
	commands string
	// running is one that goes on while the next ones run.
	running bool
}

func tutorialBlocks(t *testing.T) (blocks []tutorialBlock) {
	t.Helper()
	page := must.Get(os.ReadFile("../../../docs/tutorial/first-shaped-pod.md"))(t)
	for _, found := range consoleBlock.FindAllStringSubmatch(string(page), -1) {
		switch note := strings.TrimSpace(found[1]); note {
		case notRun:
		case "", otherTerminal:
			blocks = append(blocks, tutorialBlock{found[2], note == otherTerminal})
		default:
			t.Fatalf("a block is marked %q, want %q, %q or nothing", note, otherTerminal, notRun)
		}
	}
	return blocks
}

// tutorialShell runs blocks one after the other in one set of namespaces: of the network,
// so that nothing of the machine is touched; of mounts, for the names of network
// namespaces, bpffs and podweir's records; and of processes, so that none stays.
type tutorialShell struct{ dir, pid string }

func newTutorialShell(t *testing.T, dir string) *tutorialShell {
	t.Helper()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "bin/podweir"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	must.Files(t, dir, map[string]string{"sudo": "#!/bin/sh\nexec \"$@\"\n"})
	const prepare = `mount --make-rprivate / && mount -t proc none /proc && mount -t tmpfs none /run && mkdir -p /run/netns &&
		mount -t bpf none /sys/fs/bpf && ip link set lo up && touch "$0" && exec sleep 600`
	ready := filepath.Join(dir, "ready")
	holder := exec.Command("sh", "-c", prepare, ready)
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	must.OK(t, holder.Start())
	s := &tutorialShell{dir, strconv.Itoa(holder.Process.Pid)}
	t.Cleanup(func() {
		_ = holder.Process.Kill() // and with it every process of its namespace
		_ = holder.Wait()
		_ = os.Remove("/tmp/weir-iperf3.pid")
	})
	testutil.Eventually(t, 10*time.Second, "the namespaces are ready", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	return s
}

// run returns what a block printed, or "" for one that goes on. A reader is slower than
// the server takes to listen; a test is not.
func (s *tutorialShell) run(t *testing.T, block tutorialBlock) (said string) {
	t.Helper()
	testutil.Eventually(t, 2*time.Minute, "the server listens", func() bool {
		said = s.try(t, block)
		return !strings.Contains(said, "Connection refused")
	})
	return said
}

func (s *tutorialShell) try(t *testing.T, block tutorialBlock) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, "nsenter", "--net", "--mount", "--pid", "--target", s.pid, "--wd="+s.dir, "bash", "-euo", "pipefail", "-c", block.commands)
	cmd.Env = append(os.Environ(), "PATH="+s.dir+":"+os.Getenv("PATH"))
	if block.running {
		must.OK(t, cmd.Start())
		t.Cleanup(func() { cancel(); _ = cmd.Wait() })
		return ""
	}
	defer cancel()
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "Connection refused") {
		t.Fatalf("%v:\n%s%s", err, block.commands, out)
	}
	return string(out)
}

// received is what the receiver of iperf3 got, in Mbit/s.
func received(t *testing.T, said string) float64 {
	t.Helper()
	found := regexp.MustCompile(`([\d.]+) ([MG])bits/sec +receiver`).FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("iperf3 says nothing of its receiver:\n%s", said)
	}
	scale := map[string]float64{"M": 1, "G": 1000}[found[2]]
	return scale * number(t, found[1])
}

func averagePing(t *testing.T, said string) float64 {
	t.Helper()
	found := regexp.MustCompile(`rtt min/avg/max/mdev = [\d.]+/([\d.]+)/`).FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("ping says no average:\n%s", said)
	}
	return number(t, found[1])
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	var n float64
	must.OK(t, must.Err(fmt.Sscan(text, &n)))
	return n
}
