// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package shaping turns a validated configuration into dataplane and queue
// parameters; it is pure arithmetic and touches no kernel.
package shaping

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/units"
)

// Direction is a direction of traffic, always from the pod's point of view.
type Direction uint8

// The two directions.
const (
	Egress Direction = iota + 1
	Ingress
)

// Directions lists both directions in the order they are set up.
var Directions = [...]Direction{Egress, Ingress}

func (d Direction) String() string { return name(directionNames, d) }

// Policy says how light and heavy flows share the cap.
type Policy uint8

// The policies of design.md.
const (
	// PolicyStrict sends light flows first but charges them: the total is the cap.
	PolicyStrict Policy = iota + 1
	// PolicyElephants caps heavy flows only.
	PolicyElephants
	// PolicyFlat does not classify.
	PolicyFlat
)

func (p Policy) String() string { return name(policyNames, p) }

// Queue is where heavy packets wait.
type Queue uint8

// The queue kinds of design.md.
const (
	QueueAuto Queue = iota + 1
	QueueTBF
	QueueHTB
	QueueFQ
	// QueueNone is policing.
	QueueNone
)

func (q Queue) String() string { return name(queueNames, q) }

// Mode is where podweir attaches.
type Mode uint8

// The attach modes of design.md.
const (
	ModeAuto Mode = iota + 1
	ModeQdisc
	ModeTCXPodSide
	ModeTCXHostSide
	ModeClsactPodSide
	ModeClsactHostSide
)

func (m Mode) String() string { return name(modeNames, m) }

// Place is the device that holds the ingress queue.
type Place uint8

// The places of design.md.
const (
	PlaceAuto Place = iota + 1
	// PlaceHost is the root qdisc of the host-side device.
	PlaceHost
	// PlaceIFB is the root qdisc of an ifb in the pod's namespace.
	PlaceIFB
	// PlacePreferIFB is that of an ifb where the kernel has one that packets come
	// through. On other kernels the direction is policed. Profiles ask for this;
	// PlaceIFB is the operator's word and fails where it is not available.
	PlacePreferIFB
)

func (p Place) String() string { return name(placeNames, p) }

// IFB says whether the place is on an ifb, at least where the kernel has one.
func (p Place) IFB() bool { return p == PlaceIFB || p == PlacePreferIFB }

// Shaper is who enforces the limit that a pod's annotations ask for.
type Shaper uint8

// The shapers.
const (
	ShaperPodweir Shaper = iota + 1
	// ShaperCilium is Cilium's bandwidth manager, which reads the same
	// annotations.
	ShaperCilium
)

func (s Shaper) String() string { return name(shaperNames, s) }

var (
	directionNames = map[Direction]string{Egress: "egress", Ingress: "ingress"}
	policyNames    = map[Policy]string{
		PolicyStrict: "strict", PolicyElephants: "elephants", PolicyFlat: "flat",
	}
	queueNames = map[Queue]string{
		QueueAuto: "auto", QueueTBF: "tbf", QueueHTB: "htb", QueueFQ: "fq", QueueNone: "none",
	}
	modeNames = map[Mode]string{
		ModeAuto: "auto", ModeQdisc: "qdisc",
		ModeTCXPodSide: "tcx-podside", ModeTCXHostSide: "tcx-hostside",
		ModeClsactPodSide: "clsact-podside", ModeClsactHostSide: "clsact-hostside",
	}
	placeNames  = map[Place]string{PlaceAuto: "auto", PlaceHost: "host", PlaceIFB: "ifb", PlacePreferIFB: "prefer-ifb"}
	shaperNames = map[Shaper]string{ShaperPodweir: "podweir", ShaperCilium: "cilium"}
)

func name[T ~uint8](names map[T]string, v T) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("invalid(%d)", v)
}

// ParsePolicy reads the name of a policy. Accepted are strict, elephants and
// flat; returns a [*units.ValueError] for anything else.
func ParsePolicy(s string) (Policy, error) { return parse(policyNames, s) }

// ParseQueue reads the name of a queue kind. Accepted are auto, tbf, htb, fq
// and none.
func ParseQueue(s string) (Queue, error) { return parse(queueNames, s) }

// ParseMode reads the name of an attach mode.
func ParseMode(s string) (Mode, error) { return parse(modeNames, s) }

// ParsePlace reads the name of an ingress place. Accepted are auto, host, ifb
// and prefer-ifb.
func ParsePlace(s string) (Place, error) { return parse(placeNames, s) }

// ParseShaper reads the name of a shaper. Accepted are podweir and cilium.
func ParseShaper(s string) (Shaper, error) { return parse(shaperNames, s) }

func parse[T ~uint8](names map[T]string, s string) (T, error) {
	for v, n := range names {
		if n == s {
			return v, nil
		}
	}
	return 0, &units.ValueError{Value: s, Accepted: "one of " + accepted(names)}
}

// accepted lists the names in the order of their values.
func accepted[T ~uint8](names map[T]string) string {
	out := ""
	for v, left := T(1), len(names); left > 0; v++ {
		if n, ok := names[v]; ok {
			if out != "" {
				out += ", "
			}
			out += n
			left--
		}
	}
	return out
}

// Limit is what is asked for in one direction, complete with defaults.
type Limit struct {
	// Rate is the cap in bits per second, [units.MinRate] to [units.MaxRate].
	Rate units.BitRate
	// Burst is what may leave back to back after idle; 0 means the default,
	// [DefaultBurst] of the cap.
	Burst units.Bytes
	// Horizon is the depth of the heavy band in time, as far as nothing else asks
	// for a deeper one.
	Horizon time.Duration
	// LightShare is what light flows may take while heavy flows wait, in
	// per mille of the cap.
	LightShare units.PerMille
	// HeavyThreshold is the rate above which a flow is heavy under
	// [PolicyElephants], in per mille of the cap.
	HeavyThreshold units.PerMille
	Policy         Policy
	Queue          Queue
	Mode           Mode
	// Place is for ingress only.
	Place Place
	// NoCeiling leaves out the ceiling of egress, [Params.Ceiling].
	NoCeiling bool `json:",omitempty"`
}

// Defaults of ruling 1.
const (
	DefaultBurst          = 10 * time.Millisecond
	DefaultHorizon        = 50 * time.Millisecond
	DefaultLightShare     = units.PerMille(900)
	DefaultHeavyThreshold = units.PerMille(50)
)

// Config is what one attachment asks for.
type Config struct {
	// Egress and Ingress are nil where no limit is asked for.
	Egress, Ingress *Limit
	// Unshaped are remote networks whose traffic is exempt; Shaped, if not
	// empty, are the only ones that are not. At most one of them is set.
	Unshaped, Shaped []netip.Prefix
	// Deferred are the limits that the pod asks for and that are left to
	// somebody else; those directions have no limit here.
	Deferred []Deferred `json:",omitempty"`
	// Notes say what of the wish was not accepted and what is done instead, for
	// people. They change nothing.
	Notes []string `json:",omitempty"`
}

// Deferred is a limit that somebody else enforces.
type Deferred struct {
	Direction Direction
	// Rate is the cap in bits per second.
	Rate units.BitRate
	To   Shaper
}

func (d Deferred) String() string {
	who := d.To.String()
	if d.To == ShaperCilium {
		who = "Cilium's bandwidth manager"
	}
	return fmt.Sprintf("%v of %v is left to %s", d.Rate, d.Direction, who)
}

// Limited says whether a limit is asked for in either direction.
func (c *Config) Limited() bool { return c.Egress != nil || c.Ingress != nil }

// Left says which limits are left to others, "" if none is.
func (c *Config) Left() string {
	texts := make([]string, len(c.Deferred))
	for i, d := range c.Deferred {
		texts[i] = d.String()
	}
	return strings.Join(texts, ", ")
}

// Limit returns the limit of a direction, nil if there is none.
func (c *Config) Limit(d Direction) *Limit {
	if d == Egress {
		return c.Egress
	}
	return c.Ingress
}
