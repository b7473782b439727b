// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

const (
	// CallsPerSecond is how many packets a call has, as far as their size allows.
	CallsPerSecond = 200
	// EthernetBytes are those of a frame beyond its IP packet.
	EthernetBytes = 14
	// fullFrame is a frame of bulk at an MTU of 1,500 bytes.
	fullFrame = 1500 + EthernetBytes
	// callLeast and callMost bound the IP packets of a call.
	callLeast, callMost = 100, 1400
	// Fetchers are the clients of a closed loop.
	Fetchers = 16
)

// callFlows is the number of calls.
func (m *Mix) callFlows() int { return max(m.Calls, 1) }

// CallBytesPerSecond is the rate of each call on the wire, at a cap in bits per
// second.
func (m *Mix) CallBytesPerSecond(rate uint64) float64 { return m.CallShare * float64(rate) / 8 }

// CallPacket is the size of an IP packet of a call, in bytes.
func (m *Mix) CallPacket(rate uint64) int {
	return min(max(int(m.CallBytesPerSecond(rate)/CallsPerSecond)-EthernetBytes, callLeast), callMost)
}

// BulkFlows is the number of bulk flows.
func (m *Mix) BulkFlows() int {
	n := 0
	for _, b := range m.Bulk {
		n += b.Flows
	}
	return n
}

// Marked says that all bulk asks for marks.
func (m *Mix) Marked() bool {
	for _, b := range m.Bulk {
		if !b.ECN {
			return false
		}
	}
	return len(m.Bulk) > 0
}

// others is the number of flows beside the calls. A flood of which every packet is
// another flow has no number.
func (m *Mix) others() (flows int, ok bool) {
	switch {
	case m.Flood == "ports":
		return 0, false
	case m.Flood != "":
		flows++
	}
	if m.Tunnel {
		flows++ // bulk and all else is inside of one
	} else {
		flows += m.BulkFlows()
	}
	if m.Fetch {
		flows += Fetchers
	}
	if m.Stream {
		flows++
	}
	if m.VideoShare > 0 {
		flows++
	}
	return flows, true
}

// BelowShare says whether each call takes at most its fair share, which is the cap
// by the number of flows.
func (m *Mix) BelowShare() bool {
	others, ok := m.others()
	const rounding = 1e-9
	return ok && m.CallShare*float64(others+m.callFlows()) <= 1+rounding
}

// TurnSeconds is how long one packet of each active flow takes at a cap.
func (m *Mix) TurnSeconds(rate uint64) float64 {
	others, _ := m.others()
	bytes := others*fullFrame + m.callFlows()*(m.CallPacket(rate)+EthernetBytes)
	return float64(bytes) * 8 / float64(rate)
}

// FrameSeconds is how long a full frame takes at a cap.
func FrameSeconds(rate uint64) float64 { return fullFrame * 8 / float64(rate) }
