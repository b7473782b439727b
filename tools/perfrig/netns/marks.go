// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"os"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// askForMarks has a host's TCP ask for ECN, and answer who does.
func askForMarks(h *lab.Host) error {
	return h.Netns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_ecn", []byte("1"), 0o644) })
}

// countMarks begins to count what podweir's programs mark and drop, where the bulk asks
// for marks and this build's programs decide. Of others' the senders' reports say what
// was sent again. done records what was counted.
func (l *ordinary) countMarks(d traffic.Direction) (done func() error, err error) {
	p := &l.cell.Phase
	if !l.mix.Marked() || p.Kind != spec.Podweir || p.Keys["type"] != "" || p.Keys["policy"] != "strict" {
		return func() error { return nil }, nil
	}
	now := func() (packets, error) {
		return counted(l.rig.Lab, d.String(), func(container string) bool { return container == l.pod.ContainerID })
	}
	before, err := now()
	return func() error {
		after, err := now()
		l.set("bulk_marked_count", float64(after.marked-before.marked))
		l.set("bulk_dropped_count", float64(after.dropped-before.dropped))
		return err
	}, err
}
