// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
)

// pathMeter is a [programMeter] of podweir's programs while one pod has traffic. Its
// empty program stands behind podweir's on the same device and sees the same
// packets, with the same caches as them: what the statistics show of it is what
// they cost there. The two directions of a pod share programs, so what is measured
// is the mean of a run, those for the acknowledgements of the other direction
// included.
type pathMeter struct {
	programMeter
	empty *ebpf.Program
	link  io.Closer
	// before are the counts at the beginning.
	before, emptyBefore ran
}

// meterPath begins to count.
func meterPath(rig *traffic.Rig, pod *traffic.Target, d traffic.Direction) (*pathMeter, error) {
	on, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("switch on the statistics of programs: %w", err)
	}
	m := &pathMeter{programMeter: programMeter{stats: on}}
	if err := m.begin(rig, pod, d); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *pathMeter) begin(rig *traffic.Rig, pod *traffic.Target, d traffic.Direction) error {
	if err := m.reopen(ownPrograms); err != nil {
		return err
	}
	if len(m.programs) == 0 {
		return errors.New("podweir has no program on this machine")
	}
	if err := m.attachEmpty(rig, pod, d); err != nil {
		return err
	}
	var err error
	if m.before, err = m.read(); err != nil {
		return err
	}
	m.emptyBefore, err = sumOf([]*ebpf.Program{m.empty})
	return err
}

// attachEmpty puts the empty program at the egress hook of the device whose
// queue is the direction's (TCX, Linux 6.6).
func (m *pathMeter) attachEmpty(rig *traffic.Rig, pod *traffic.Target, d traffic.Direction) error {
	var err error
	m.empty, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "perfrig_empty", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdictNext), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("empty program: %w", err)
	}
	var ns *lab.Netns
	ns, name := pod.Netns, pod.IfName
	if d == traffic.Ingress {
		ns, name = rig.Lab.Node(), pod.HostIfName
	}
	return ns.Do(func() error {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
		l, err := link.AttachTCX(link.TCXOptions{
			Interface: dev.Index, Program: m.empty, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail(),
		})
		if err != nil {
			return fmt.Errorf("empty program at %s: %w", name, err)
		}
		m.link = l
		return nil
	})
}

// end is the time of a run of podweir's programs, in ns, without that of the
// statistics, which is returned beside it. There must have been at least as many
// runs as packets.
func (m *pathMeter) end(packets uint64) (cost, statistics float64, err error) {
	did, err := m.read()
	if err != nil {
		return 0, 0, err
	}
	empty, err := sumOf([]*ebpf.Program{m.empty})
	if err != nil {
		return 0, 0, err
	}
	did, empty = did.sub(m.before), empty.sub(m.emptyBefore)
	if did.runs < packets || empty.runs == 0 {
		return 0, 0, fmt.Errorf("the kernel counted %d runs of podweir's programs and %d of an empty one for %d packets",
			did.runs, empty.runs, packets)
	}
	m.overhead = float64(empty.time) / float64(empty.runs)
	return m.perPacket(did, did.runs), m.overhead, nil
}

// Close ends the account and removes the empty program.
func (m *pathMeter) Close() error {
	var errs []error
	if m.link != nil {
		errs = append(errs, m.link.Close())
	}
	// A program that is nil may be closed.
	return errors.Join(append(errs, m.empty.Close(), m.programMeter.Close())...)
}
