// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package examine

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
)

// Flows reads the counters of every limit.
func (n *Node) Flows(context.Context) ([]doctor.Flow, error) {
	node, err := n.open()
	if node == nil {
		return nil, err
	}
	defer node.Close()
	rep, err := status.Collect(node)
	if err != nil {
		return nil, err
	}
	var out []doctor.Flow
	for i := range rep.Attachments {
		a := &rep.Attachments[i]
		if a.Error != "" {
			continue // PW602 and PW608 tell
		}
		passed, err := deviceCounts(&a.Interface)
		for _, d := range a.Directions {
			one := doctor.Flow{
				Pod: a.Name(), Direction: d.Direction, Device: a.Interface.HostName, Passed: passed[d.Direction.Is], Held: held(&d),
			}
			if err != nil {
				one.Err = err.Error()
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// held is what the queue of a direction counted, or the program where there is
// none.
func held(d *status.Direction) doctor.Count {
	if d.Qdisc != nil {
		return doctor.Count{Packets: d.Qdisc.Packets + d.Qdisc.Drops, Bytes: d.Qdisc.Bytes}
	}
	var sum doctor.Count
	for _, c := range d.Counters {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
	}
	return sum
}

// deviceCounts reads the counters of a pod's own device, by direction. The ifb
// gives packets back behind the point where the device counts, so each counts
// once.
func deviceCounts(i *attach.Interface) (map[terms.Direction]doctor.Count, error) {
	ns, err := rtnl.OpenNetNS(i.NetNSPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	var text []byte
	err = ns.Do(func() (err error) {
		// Of the thread, which is in the pod's namespace; the process is not.
		text, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return nil, err
	}
	return parseDevice(string(text), i.PodName)
}

// parseDevice reads a line of /proc/net/dev: eight counters of what was
// received, bytes and packets first, and eight of what was sent.
func parseDevice(text, name string) (map[terms.Direction]doctor.Count, error) {
	const perDirection = 8
	for line := range strings.Lines(text) {
		device, rest, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(device) != name {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < 2*perDirection {
			return nil, fmt.Errorf("counters of %s: %d fields, want %d", name, len(fields), 2*perDirection)
		}
		var counts [4]uint64
		for i, at := range []int{0, 1, perDirection, perDirection + 1} {
			var err error
			if counts[i], err = strconv.ParseUint(fields[at], 10, 64); err != nil {
				return nil, fmt.Errorf("counters of %s: %w", name, err)
			}
		}
		return map[terms.Direction]doctor.Count{
			terms.Ingress: {Bytes: counts[0], Packets: counts[1]}, terms.Egress: {Bytes: counts[2], Packets: counts[3]},
		}, nil
	}
	return nil, fmt.Errorf("counters of %s: no such device", name)
}
