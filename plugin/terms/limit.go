// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms

import (
	"fmt"
	"time"

	"github.com/podweir/podweir/plugin/units"
)

// Limit is the limit of one direction of one interface of a pod, as it is enforced or
// observed: what the agent, status, the metrics and the doctor all tell of it. It is typed
// from where it is read to where it is rendered.
type Limit struct {
	Direction Named[Direction] `json:"direction"`
	// Rate is the cap.
	Rate units.BitRate `json:"rateBitsPerSecond"`
	// Asked is the rate that the pod requests, 0 for none. If what it wrote is not accepted,
	// AskedText is the text and AskedIn the annotation or key. DecidedBy is the setting that
	// decided on another rate, "" if the pod has what it requests.
	Asked     units.BitRate `json:"askedBitsPerSecond,omitempty"`
	AskedText string        `json:"askedText,omitempty"`
	AskedIn   string        `json:"askedIn,omitempty"`
	DecidedBy string        `json:"decidedBy,omitempty"`
	// Burst is what may leave back to back after idle.
	Burst   units.Bytes    `json:"burstBytes"`
	Enforce Named[Enforce] `json:"enforce"`
	Policy  Named[Policy]  `json:"policy"`
	// Queue is what was chosen, Mode and Side where it is.
	Queue Named[Queue] `json:"queue"`
	Mode  Named[Mode]  `json:"mode"`
	Side  Named[Side]  `json:"side"`
	// CapHolds is false where a second may have more than the limit: there is no queue, or
	// one that allows it.
	CapHolds bool `json:"capHolds"`
	// Ceiling says that what goes past the queue is limited on the host side all the same.
	Ceiling bool `json:"ceiling,omitempty"`
	// NoCeiling says why egress has no ceiling, "" if it has one or none was requested.
	NoCeiling string `json:"noCeiling,omitempty"`
	// Group is what the pods of the namespace have together on this node, 0 if they have no such
	// limit. Share is what the queue has of it now, 0 if it has no share. NoShare says why it has
	// none, or would have none if the limit were not observed only. NoGroupCeiling says why nothing
	// behind the queue holds the group's limit while nobody divides it, "" if something does.
	Group          units.BitRate `json:"groupBitsPerSecond,omitempty"`
	Share          units.BitRate `json:"shareBitsPerSecond,omitempty"`
	NoShare        string        `json:"noShare,omitempty"`
	NoGroupCeiling string        `json:"noGroupCeiling,omitempty"`
	// Blocked names a program of others that drops every packet of the direction.
	Blocked string `json:"blocked,omitempty"`
	// Ahead names programs of others that run before the redirect to the ifb, of which it is
	// not known which packets they take past it; "" if there are none.
	Ahead string `json:"ahead,omitempty"`
}

// Observed says that nothing is held to the limit.
func (l *Limit) Observed() bool { return l.Enforce.Is == EnforceObserve }

// SharePacket is the largest packet that is not cut below a share, in bytes. HTB sends it as soon as the
// share has any credit, and the share pays for it later.
const SharePacket units.Bytes = 9_600

// CoarseEach returns a warning if one packet of each pod is more than a twentieth of what the pods' common
// limit carries in 100 ms, else "".
func CoarseEach(limit units.BitRate, pods int) string {
	const most = 5
	part := 100 * SharePacket * units.Bytes(pods) / max(limit.Bytes(100*time.Millisecond), 1)
	if part <= most {
		return ""
	}
	return fmt.Sprintf("%v for each of %d pods: one packet of each is up to %d %% of the limit in 100 ms", limit/units.BitRate(pods), pods, part)
}

// Past is what went past podweir, as an agent saw it minute by minute.
type Past struct {
	// PastBytes are the pod's device's, less what came by podweir.
	PastBytes uint64 `json:"pastBytes,omitempty"`
	// PastSince is when the first minute began in which some did, PastLast when the last
	// ended.
	PastSince time.Time `json:"pastSince,omitzero"`
	PastLast  time.Time `json:"pastLast,omitzero"`
}

// Ask is what a pod asks for in a direction: the annotation, and its value as it was written
// or as the runtime passed it on.
type Ask struct {
	Direction   Direction
	Name, Value string
}

// Misspelt is an annotation that nobody reads and that looks like one that asks for a limit.
type Misspelt struct {
	// Direction is that of Near, which may be meant.
	Direction  Direction
	Name, Near string
}

func (m Misspelt) String() string { return m.Name + ", did you mean " + m.Near + "?" }

// RuntimeAsk is an ask of the runtime's in bits per second.
func RuntimeAsk(d Direction, rate uint64) Ask {
	suffix := ""
	for _, s := range []string{"k", "M", "G"} {
		if rate == 0 || rate%1000 != 0 {
			break
		}
		rate, suffix = rate/1000, s
	}
	return Ask{Direction: d, Name: "kubernetes.io/" + d.String() + "-bandwidth", Value: fmt.Sprintf("%d%s", rate, suffix)}
}

func (a Ask) String() string { return fmt.Sprintf("%s: %q", a.Name, a.Value) }

// MarshalText returns it as people are shown it.
func (a Ask) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
