// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// The loader says that addresses in packets may have any alignment. A kernel that was
// built without CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS refuses the programs otherwise;
// every kernel does so where strict alignment is requested. Programs that are not
// refused do not need what the loader says.
func TestPrivilegedProgramsNeedAnyAlignment(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	bpftest.RequireRoot(t)
	spec := must.Get(bpf.LoadPodweir())(t)
	load := func(name string, flags uint32) error {
		one := oneProgram(t, name)
		one.Programs[name].Flags = flags
		c, err := ebpf.NewCollection(one)
		if err == nil {
			c.Close()
		}
		return err
	}
	refused := 0
	for name := range spec.Programs {
		err := load(name, unix.BPF_F_STRICT_ALIGNMENT)
		if errors.Is(err, unix.EACCES) {
			refused++
		} else if err != nil {
			t.Errorf("%s with strict alignment: %v", name, err)
		}
		if err := load(name, unix.BPF_F_STRICT_ALIGNMENT|unix.BPF_F_ANY_ALIGNMENT); err != nil {
			t.Errorf("%s with any alignment: %v", name, err)
		}
	}
	if refused == 0 {
		t.Errorf("none of %d programs is refused with strict alignment: the loader need not say that any will do", len(spec.Programs))
	}
	t.Logf("%d of %d programs are refused with strict alignment", refused, len(spec.Programs))
}

// Contention lets no packet through free: whatever races CPUs lose against
// each other, the meter holds the cost of every packet, to the unit.
func TestPrivilegedConcurrentCharges(t *testing.T) {
	const perCPU = 2_000_000
	d, _ := loadOne(t, "pw_police", 1)
	m := newDirection(1e9, terms.PolicyFlat)
	m.Config.TotalRate = image.Rate{Mult: 3} // 3/64 ns for a byte
	m.Config.TotalHorizon = meterTime(time.Hour)
	d.WriteConfig(datapath.Config(&m.Config, 0), m.Keys)
	// Far ahead of now, or an idle meter would forget what it never owed.
	start := (monotonicNS(t) + uint64(10*time.Minute)) << 6
	d.WriteState(&image.State{TotalTat: start})

	cpus := max(runtime.NumCPU(), 2)
	var group sync.WaitGroup
	for range cpus {
		group.Go(func() {
			if _, _, err := d.Program("pw_police").Benchmark(tcpPacket(3), perCPU, nil); err != nil {
				t.Errorf("run pw_police: %v", err)
			}
		})
	}
	group.Wait()
	packets, _ := d.Counters()
	must.Be(t, "packets marked", uint64(cpus*perCPU), packets[image.Marked])
	got, want := d.State().TotalTat-start, uint64(cpus*perCPU)*3*uint64(len(tcpPacket(3)))
	must.Be(t, fmt.Sprintf("units that %d CPUs charged", cpus), want, got)
}
