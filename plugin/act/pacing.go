// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package act

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// The sysctls of [shaping.Pacing].
const (
	rttLogSysctl      = "net/ipv4/tcp_tso_rtt_log"
	minSegmentsSysctl = "net/ipv4/tcp_min_tso_segs"
)

// Pacing reads by what TCP sizes its packets in a pod's namespace: nil if the kernel lacks a
// sysctl of it (before Linux 5.18), or the namespace is the node's, where they are everybody's.
func Pacing(pod, node *rtnl.NetNS) (*shaping.Pacing, error) {
	if pod.Same(node) {
		return nil, nil
	}
	values, err := pod.ReadSysctls(rttLogSysctl, minSegmentsSysctl)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &shaping.Pacing{RTTLog: values[0], MinSegments: values[1]}, nil
}

// pace makes TCP in the pod size its packets by what should be there: told what is there now.
// Connections that are open do so, too.
func (i *Interface) pace(wanted func(now shaping.Pacing) shaping.Pacing) error {
	pod, err := i.Node.Device(i.Record, terms.SidePod)
	if pod == nil || err != nil {
		return err
	}
	now, err := Pacing(pod.NS, i.NodeNS)
	if now == nil || err != nil {
		return err
	}
	want := wanted(*now)
	if want.RTTLog != now.RTTLog {
		err = pod.NS.WriteSysctl(rttLogSysctl, want.RTTLog)
	}
	if want.MinSegments != now.MinSegments {
		err = errors.Join(err, pod.NS.WriteSysctl(minSegmentsSysctl, want.MinSegments))
	}
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil // the limit holds without it, and whoever looks sees the difference
	}
	return err
}
