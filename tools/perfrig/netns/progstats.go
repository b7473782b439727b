// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/podweir/podweir/e2e/step"
)

// verdictNext is TCX_NEXT: whatever is behind the program decides.
const verdictNext = -1

// ownPrograms is how the names of podweir's programs begin.
const ownPrograms = "pw_"

// programMeter reads what the kernel itself measures of podweir's programs while they
// handle packets (BPF_ENABLE_STATS, Linux 5.8): it takes the time before and
// after each run. What that costs is in the times, and is told apart by an
// empty program. It needs root, and counts for all programs of the machine
// until Close.
type programMeter struct {
	stats    io.Closer
	programs []*ebpf.Program
	// overhead is what the kernel measures of a program that does nothing.
	overhead float64 // ns
}

// ran is what programs did: the sum of their times and the number of runs.
type ran struct {
	time time.Duration
	runs uint64
}

func (r ran) sub(o ran) ran { return ran{r.time - o.time, r.runs - o.runs} }

// reopen meters podweir's programs that there are by now. One that goes meanwhile is left out.
func (m *programMeter) reopen() {
	step.OK(m.letGo())
	for id := ebpf.ProgramID(0); ; {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, os.ErrNotExist) {
			return
		}
		step.OK(err)
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		step.OK(err)
		if !strings.HasPrefix(step.Get(p.Info()).Name, ownPrograms) {
			step.OK(p.Close())
			continue
		}
		m.programs = append(m.programs, p)
	}
}

// Close lets the programs go and switches the statistics off.
func (m *programMeter) Close() error { return errors.Join(m.stats.Close(), m.letGo()) }

func (m *programMeter) letGo() error {
	var errs []error
	for _, p := range m.programs {
		errs = append(errs, p.Close())
	}
	m.programs = nil
	return errors.Join(errs...)
}

// perPacket is the time of the programs for each of so many packets, in ns,
// without that of the statistics.
func (m *programMeter) perPacket(did ran, packets uint64) float64 {
	return (float64(did.time) - m.overhead*float64(did.runs)) / float64(packets)
}

// sumOf is what all of the programs did since they were loaded.
func sumOf(programs ...*ebpf.Program) (sum ran) {
	for _, p := range programs {
		s := step.Get(p.Stats())
		sum.time += s.Runtime
		sum.runs += s.RunCount
	}
	return sum
}

const (
	// emptyRuns of the empty program, the best of emptyRounds, are some 0.2 s.
	emptyRuns   = 500_000
	emptyRounds = 5
)

// emptyProgram is what the statistics tell of a program that does nothing, in
// ns for each run.
func emptyProgram() float64 {
	p := step.Get(ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "perfrig_empty", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdictNext), asm.Return()},
	}))
	defer step.Close(p.Close)
	// The smallest packet that test runs take is an Ethernet header.
	const ethernet = 14
	best := math.Inf(1)
	for range emptyRounds {
		before := sumOf(p)
		step.Get(p.Run(&ebpf.RunOptions{Data: make([]byte, ethernet), Repeat: emptyRuns}))
		did := sumOf(p).sub(before)
		if did.runs < emptyRuns {
			step.OK(fmt.Errorf("the statistics count %d runs of %d", did.runs, emptyRuns))
		}
		best = min(best, float64(did.time)/float64(did.runs))
	}
	return best
}
