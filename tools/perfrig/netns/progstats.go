// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// verdictNext is TCX_NEXT: whatever is behind the program decides.
const verdictNext = -1

// ownPrograms is how the names of podweir's programs begin.
const ownPrograms = "pw_"

// programMeter reads what the kernel itself measures of programs while they
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

// meterPrograms meters all programs that there are now whose names begin so.
func meterPrograms(prefix string) (*programMeter, error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("switch on the statistics of programs: %w", err)
	}
	m := &programMeter{stats: stats}
	if m.overhead, err = emptyProgram(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := m.reopen(prefix); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// reopen meters the programs that there are by now.
func (m *programMeter) reopen(prefix string) error {
	err := m.letGo()
	if err == nil {
		m.programs, err = programsNamed(prefix)
	}
	return err
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

// read sums up what all of the programs did since they were loaded.
func (m *programMeter) read() (ran, error) { return sumOf(m.programs) }

// perPacket is the time of the programs for each of so many packets, in ns,
// without that of the statistics.
func (m *programMeter) perPacket(did ran, packets uint64) float64 {
	return (float64(did.time) - m.overhead*float64(did.runs)) / float64(packets)
}

func sumOf(programs []*ebpf.Program) (ran, error) {
	var sum ran
	for _, p := range programs {
		s, err := p.Stats()
		if err != nil {
			return ran{}, fmt.Errorf("statistics of %v: %w", p, err)
		}
		sum.time += s.Runtime
		sum.runs += s.RunCount
	}
	return sum, nil
}

// programsNamed opens the programs whose names begin so. One that goes
// meanwhile is left out. It returns what it has opened also with an error.
func programsNamed(prefix string) (found []*ebpf.Program, err error) {
	for id := ebpf.ProgramID(0); ; {
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, os.ErrNotExist) {
			return found, nil
		} else if err != nil {
			return found, fmt.Errorf("list BPF programs: %w", err)
		}
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return found, fmt.Errorf("open BPF program %d: %w", id, err)
		}
		info, err := p.Info()
		if err == nil && !strings.HasPrefix(info.Name, prefix) {
			err = p.Close()
		} else {
			found = append(found, p)
		}
		if err != nil {
			return found, fmt.Errorf("BPF program %d: %w", id, err)
		}
	}
}

const (
	// emptyRuns of the empty program, the best of emptyRounds, are some 0.2 s.
	emptyRuns   = 500_000
	emptyRounds = 5
)

// emptyProgram is what the statistics tell of a program that does nothing, in
// ns for each run.
func emptyProgram() (ns float64, err error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "perfrig_empty", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdictNext), asm.Return()},
	})
	if err != nil {
		return 0, fmt.Errorf("empty program: %w", err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	// The smallest packet that test runs take is an Ethernet header.
	const ethernet = 14
	before, err := sumOf([]*ebpf.Program{p})
	if err != nil {
		return 0, err
	}
	for range emptyRounds {
		if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, ethernet), Repeat: emptyRuns}); err != nil {
			return 0, fmt.Errorf("run the empty program: %w", err)
		}
		now, err := sumOf([]*ebpf.Program{p})
		if err != nil {
			return 0, err
		}
		did := now.sub(before)
		if did.runs < emptyRuns {
			return 0, fmt.Errorf("the statistics count %d runs of %d", did.runs, emptyRuns)
		}
		if one := float64(did.time) / float64(did.runs); ns == 0 || one < ns {
			ns = one
		}
		before = now
	}
	return ns, nil
}
