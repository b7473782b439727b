// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ethernet is the size of the header that IP counters leave out.
const ethernet = 14

// ipReceived is what IPv4 of a namespace has received since it exists.
type ipReceived struct{ packets, octets uint64 }

// ipReceived reads the counters of the pod's namespace.
func (t *Target) ipReceived() (*ipReceived, error) {
	var raw []byte
	err := t.Netns.Do(func() error {
		var err error
		raw, err = os.ReadFile(fmt.Sprintf("/proc/self/task/%d/net/netstat", unix.Gettid()))
		return err
	})
	if err != nil {
		return nil, err
	}
	// Two lines for each group: names, then values.
	var names []string
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "IpExt:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		out := &ipReceived{}
		for i, name := range names {
			var to *uint64
			switch name {
			case "InOctets":
				to = &out.octets
			case "InNoECTPkts":
				to = &out.packets
			default:
				continue
			}
			if *to, err = strconv.ParseUint(f[i], 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("pod %s: no IpExt in its counters", t.Name)
}
