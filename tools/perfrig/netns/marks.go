// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"os"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// askForMarks has a host's TCP ask for ECN, and answer who does.
func askForMarks(h *lab.Host) error {
	return h.Netns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_ecn", []byte("1"), 0o644) })
}

// marks are what podweir's programs marked and dropped since a moment.
type marks struct {
	state           *state // nil: there is nothing to read
	marked, dropped uint64
}

// countMarks begins to count where the bulk asks for marks and this build's programs
// decide. Of others' the senders' reports say what was sent again.
func (l *ordinary) countMarks(d traffic.Direction) (*marks, error) {
	p := &l.cell.Phase
	if !l.mix.Marked() || p.Kind != spec.Podweir || p.Keys["type"] != "" || p.Keys["policy"] != "strict" {
		return &marks{}, nil
	}
	s, err := openState(l.pod, d)
	if err != nil {
		return nil, err
	}
	m := &marks{state: s}
	m.marked, m.dropped = m.now()
	return m, nil
}

func (m *marks) now() (marked, dropped uint64) {
	counts := &m.state.slot.State.Counts
	return counts[image.Marked].Packets, counts[image.DropEarly].Packets + counts[image.DropHorizon].Packets
}

// done records what was counted.
func (m *marks) done(r *run) {
	if m.state == nil {
		return
	}
	marked, dropped := m.now()
	r.set("bulk_marked_count", float64(marked-m.marked))
	r.set("bulk_dropped_count", float64(dropped-m.dropped))
}

func (m *marks) close() {
	if m.state != nil {
		m.state.close()
	}
}
