// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// askForMarks has a host's TCP ask for ECN, and answer who does.
func askForMarks(h *lab.Host) error { return h.Netns.Run("sysctl -qw net.ipv4.tcp_ecn=1") }

// countMarks begins to count what podweir's programs mark and drop, where the bulk asks
// for marks and this build's programs decide. Of others' the senders' reports say what
// was sent again. done records what was counted.
func (l *ordinary) countMarks(d traffic.Direction) (done func() error, err error) {
	p := &l.cell.Phase
	if !l.mix.Marked() || p.Kind != spec.Podweir || p.Keys["type"] != "" || p.Keys["policy"] != "strict" {
		return func() error { return nil }, nil
	}
	before, err := l.rig.Lab.Counters(d.String(), l.pod.Pod)
	return func() error {
		after, err := l.rig.Lab.Counters(d.String(), l.pod.Pod)
		grown := func(names ...string) (n float64) {
			for _, name := range names {
				n += float64(after[name].Packets - before[name].Packets)
			}
			return n
		}
		l.set("bulk_marked_count", grown("marked"))
		l.set("bulk_dropped_count", grown("dropped-early", "dropped-horizon"))
		return err
	}, err
}
