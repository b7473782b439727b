// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/podweir/podweir/plugin/units"
)

// Reached is how long a direction has been at its limit, which a node's agent sees every
// two seconds. Nothing of it is known if no agent watches the limit.
type Reached struct {
	// AtLimitSince is when it came to its limit, zero if it is not at it; pauses of up to
	// 10 s do not count.
	AtLimitSince time.Time `json:"atLimitSince,omitzero"`
	// HeldShare is the part of the last minute in which it was at its limit, 1 for all of
	// it; nil if that is unknown.
	HeldShare *float64 `json:"heldShare,omitempty"`
}

// Held says that it was at its limit in the last minute.
func (r *Reached) Held() bool { return r.HeldShare != nil && *r.HeldShare > 0 }

// Flow is a heavy flow.
type Flow struct {
	// Protocol is an IP protocol number, or 0 with EtherType set.
	Protocol  uint8          `json:"protocol"`
	EtherType uint16         `json:"etherType,omitempty"`
	Source    netip.AddrPort `json:"source"`
	Dest      netip.AddrPort `json:"destination"`
	// Bytes are wire bytes since Since; LastSeen is how long ago the last packet was.
	Bytes    uint64        `json:"bytes"`
	Since    time.Duration `json:"sinceNanoseconds"`
	LastSeen time.Duration `json:"lastSeenNanoseconds"`
	// SourcePod and DestPod are the pods at its ends, "" if they are not known.
	SourcePod string `json:"sourcePod,omitempty"`
	DestPod   string `json:"destinationPod,omitempty"`
}

// Name is what people call the flow: the same for one flow at any time.
func (f *Flow) Name() string {
	names := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp"}
	name, ok := names[f.Protocol]
	switch {
	case f.EtherType != 0:
		return fmt.Sprintf("ethertype 0x%04x", f.EtherType)
	case !ok:
		name = fmt.Sprintf("protocol %d", f.Protocol)
	}
	return name + " " + end(f.Source) + " > " + end(f.Dest)
}

func end(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// Loss is a place where packets are lost by others than podweir, with how many were since it
// was made.
type Loss struct {
	Where   string `json:"where"`
	Packets uint64 `json:"packets"`
	// Uncounted says that packets may be lost there, and that no counter of its own tells.
	Uncounted bool `json:"uncounted,omitempty"`
	// Past says that packets may go from there into a pod past the queue on the host side.
	Past bool `json:"past,omitempty"`
}

// Device is an interface of a pod that podweir has no limit on.
type Device struct {
	// Name is that of its end on the host, or of its device in the pod if it has none.
	Name string `json:"device"`
	// NetNSPath of the pod's network namespace, "" if it is not known.
	NetNSPath string `json:"netns,omitempty"`
	// EgressBytes and IngressBytes are what the pod sent and received since the device was made.
	EgressBytes  uint64 `json:"egressBytes"`
	IngressBytes uint64 `json:"ingressBytes"`
}

// Group is a limit that the pods of a namespace have together on a node, in one direction.
type Group struct {
	// Node is set where there are several.
	Node      string           `json:"node,omitempty"`
	Namespace string           `json:"namespace"`
	Direction Named[Direction] `json:"direction"`
	Limit     units.BitRate    `json:"limitBitsPerSecond"`
	// Pods is how many have a share, and Outside are the pods that have none.
	Pods    int      `json:"pods"`
	Outside []string `json:"outside,omitempty"`
	// Sent is what all of them sent in the last second, and Largest the pod that sent most of it,
	// "" if none sent anything. LargestPart is its part of Sent, at most 1.
	Sent        units.BitRate `json:"sentBitsPerSecond"`
	Largest     string        `json:"largest,omitempty"`
	LargestPart float64       `json:"largestPart,omitempty"`
	// AtLimitSince is when the pods together came to the limit, zero if they are not at it.
	AtLimitSince time.Time `json:"atLimitSince,omitzero"`
}

// Verdict is what a copy of one of podweir's programs on shared hooks answered to packets that may pass.
type Verdict struct {
	Program string
	// Wrong is "" if every packet was answered with next (-1), else what happened instead.
	Wrong string
}
