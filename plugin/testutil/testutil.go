// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package testutil has what privileged tests share: namespaces, pairs of
// devices, a BPF file system of their own, and skips that name the feature.
package testutil

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// RequireRoot skips the test without root. It fails a test that is not called
// TestPrivileged*, so that one pattern selects them all.
func RequireRoot(tb testing.TB) {
	tb.Helper()
	name := tb.Name()
	if strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "TestPrivileged") {
		tb.Fatalf("test %s needs root, so its name must begin with TestPrivileged", name)
	}
	if os.Geteuid() != 0 {
		SkipFeature(tb, "root")
	}
}

// SkipFeature skips the test because the kernel or the machine lacks what is
// named. CI compares the lines with the list of what may be skipped.
func SkipFeature(tb testing.TB, feature string) {
	tb.Helper()
	tb.Skipf("SKIP-FEATURE: %s", feature)
}

// features are probed once for a test binary.
var features = sync.OnceValues(queue.Probe)

// RequireQdisc skips the test without root, or if the kernel lacks a qdisc, a tc object
// or a device kind: tbf, prio, htb, fq, bfifo, pfifo_fast, clsact, bpf, mirred, tcx
// or ifb.
func RequireQdisc(tb testing.TB, kinds ...string) {
	tb.Helper()
	RequireRoot(tb)
	for _, kind := range kinds {
		if !HasQdisc(tb, kind) {
			SkipFeature(tb, kind)
		}
	}
}

// HasQdisc reports whether the kernel has one of the kinds that RequireQdisc lists.
func HasQdisc(tb testing.TB, kind string) bool {
	tb.Helper()
	f, err := features()
	if err != nil {
		tb.Fatalf("probe the kernel: %v", err)
	}
	has, known := map[string]bool{
		"tbf": f.TBF, "prio": f.Prio, "htb": f.HTB, "fq": f.FQ, "bfifo": f.Bfifo,
		"pfifo_fast": f.PfifoFast, "clsact": f.Clsact, "bpf": f.ClsBPF,
		"mirred": f.Mirred, "ifb": f.IFB, "tcx": HaveTCX(),
	}[kind]
	if !known {
		tb.Fatalf("%q is not a feature that is probed", kind)
	}
	return has
}

// HaveTCX reports whether the kernel has TCX, by asking it about the loopback device.
func HaveTCX() bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXEgress})
	return err == nil || errors.Is(err, os.ErrNotExist) // none is there
}

// Probed returns what podweir keeps of its probes of the kernel in its run directory, after a change if that is not nil.
func Probed(tb testing.TB, run string, change map[string]any) map[string]any {
	tb.Helper()
	path, found := filepath.Join(run, "features.json"), map[string]any{}
	must.OK(tb, json.Unmarshal(must.Get(os.ReadFile(path))(tb), &found))
	if change != nil {
		maps.Copy(found, change)
		must.OK(tb, os.WriteFile(path, must.Get(json.Marshal(found))(tb), 0o600))
	}
	return found
}

// WithoutCapabilities runs f on a thread that has none.
func WithoutCapabilities(tb testing.TB, f func() error) error {
	tb.Helper()
	RequireRoot(tb)
	result := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and nobody else gets it.
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

// pollPause is how often Eventually looks: much shorter than what tests wait
// for, long enough to leave the processor to it.
const pollPause = 5 * time.Millisecond

// Eventually fails the test unless cond is true within the deadline. what says
// in words what was waited for.
func Eventually(tb testing.TB, deadline time.Duration, what string, cond func() bool) {
	tb.Helper()
	timeout := time.NewTimer(deadline)
	defer timeout.Stop()
	tick := time.NewTicker(pollPause)
	defer tick.Stop()
	for !cond() {
		select {
		case <-timeout.C:
			if !cond() {
				tb.Fatalf("not within %v: %s", deadline, what)
			}
			return
		case <-tick.C:
		}
	}
}

// During runs f beside the test until stop, or the end of the test: then its context ends, and
// an error that it returns fails the test.
func During(tb testing.TB, f func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("what ran beside the test ended with %v, want nil", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// Emulated says whether the processor is QEMU's own, without a hypervisor's
// help: it is some 20 times slower, and keeps no time.
var Emulated = sync.OnceValue(func() bool {
	raw, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && emulated(string(raw))
})

// emulated reads what Linux says of processors. QEMU names its own "QEMU TCG CPU"; under
// KVM a machine of vmrig has the name of the host's.
func emulated(cpuinfo string) bool {
	return strings.Contains(cpuinfo, "QEMU TCG")
}

// Program is a loaded tc program of a test.
type Program struct {
	FD int
	ID uint32
}

// VerdictProgram loads a tc program that answers verdict to every packet.
func VerdictProgram(tb testing.TB, name string, verdict int32) Program {
	tb.Helper()
	return load(tb, name, asm.Instructions{
		asm.Mov.Imm(asm.R0, verdict),
		asm.Return(),
	})
}

// LargeProgram loads a tc program that answers 0 (TCX_PASS) to packets of more bytes and lets
// all others on.
func LargeProgram(tb testing.TB, name string, bytes int32) Program {
	tb.Helper()
	return load(tb, name, asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // __sk_buff.len
		asm.Mov.Imm(asm.R0, 0),
		asm.JGT.Imm(asm.R2, bytes, "end"),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return().WithSymbol("end"),
	})
}

// RedirectProgram loads a tc program that redirects every packet to the device
// with this ifindex.
func RedirectProgram(tb testing.TB, name string, ifindex int32) Program {
	tb.Helper()
	return load(tb, name, asm.Instructions{
		asm.Mov.Imm(asm.R1, ifindex),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	})
}

// Load loads a tc program until the test ends.
func Load(tb testing.TB, name string, ins asm.Instructions) *ebpf.Program {
	tb.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, Instructions: ins, License: "GPL"})
	if err != nil {
		tb.Fatalf("load program %s: %v", name, err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return p
}

// AttachTCX hangs a program on a TCX hook of a device, called ingress or egress, behind the others or ahead of
// them, until the test ends or remove is called.
func (n *NetNS) AttachTCX(tb testing.TB, ifindex int, hook string, p *ebpf.Program, where link.Anchor) (remove func()) {
	tb.Helper()
	at := ebpf.AttachTCXIngress
	if hook == "egress" {
		at = ebpf.AttachTCXEgress
	}
	var l link.Link
	must.OK(tb, n.Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: p, Attach: at, Anchor: where})
		return err
	}))
	tb.Cleanup(func() { _ = l.Close() })
	return func() { must.OK(tb, l.Close()) }
}

func load(tb testing.TB, name string, ins asm.Instructions) Program {
	tb.Helper()
	p := Load(tb, name, ins)
	info := must.Get(p.Info())(tb)
	id, _ := info.ID()
	return Program{FD: p.FD(), ID: uint32(id)}
}
