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

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Limit is what is requested in one direction, complete with defaults.
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
	Policy         terms.Policy
	Queue          terms.Queue
	Mode           terms.Mode
	// Place is for ingress only.
	Place terms.Place
	// NoCeiling leaves out the ceiling of egress, [Params.Ceiling].
	NoCeiling bool `json:",omitempty"`
	// Packets is for egress only: how packets of TCP are kept small.
	Packets Packets `json:",omitempty"`
	// Group is what the pods of the pod's namespace may have together on this node, in bits per
	// second; 0 for no such limit. Rate is never more.
	Group units.BitRate `json:",omitempty"`
	// Standard says that Rate is what the pod asks for by an annotation of Kubernetes,
	// which other software may enforce, too.
	Standard bool `json:",omitempty"`
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
	// Egress and Ingress are nil where no limit is requested.
	Egress, Ingress *Limit
	// Unshaped are remote networks whose traffic is exempt; Shaped, if not
	// empty, are the only ones that are not. At most one of them is set.
	Unshaped, Shaped []netip.Prefix
	// HostTCX says that no program goes on the host side as a clsact filter:
	// another party wants that qdisc, or removes the filters on it.
	HostTCX bool `json:",omitempty"`
	// PodTCX says that no program goes on the pod side as a clsact filter, and nothing
	// there is redirected: the pod's runtime wants the ingress qdisc of the device.
	PodTCX bool `json:",omitempty"`
	// Shared says that all interfaces of the pod have the limits together, and not each of
	// them: then Among is how many there are, 0 for one.
	Shared bool `json:",omitempty"`
	Among  int  `json:",omitempty"`
	// Observe measures and counts against the limits what passes, and holds nothing.
	Observe bool `json:",omitempty"`
	// Deferred are the limits that the pod asks for and that are left to
	// another party; those directions have no limit here.
	Deferred []Deferred `json:",omitempty"`
	// Decisions are the rates that the pod did not decide, for people. They change nothing.
	Decisions []Decision `json:",omitempty"`
	// Notes say what of the wish was not accepted and what is done instead, for
	// people. They change nothing.
	Notes []string `json:",omitempty"`
}

// Deferred is a limit that another party enforces.
type Deferred struct {
	Direction terms.Direction
	// Rate is the cap in bits per second.
	Rate units.BitRate
	To   terms.Shaper
}

// Decision is a rate that is not what the pod asks for.
type Decision struct {
	Direction terms.Direction
	// Asked is what the pod asks for, 0 if that is nothing, or cannot be read.
	Asked units.BitRate `json:",omitempty"`
	// Unread is what the pod wrote as its rate, if that is not accepted, and UnreadIn where.
	Unread   string `json:",omitempty"`
	UnreadIn string `json:",omitempty"`
	// By is the setting that decided: a key of the node's configuration, or an annotation of
	// the namespace.
	By string
}

// Decision is who decided the rate of a direction, nil if the pod did.
func (c *Config) Decision(d terms.Direction) *Decision {
	for i := range c.Decisions {
		if c.Decisions[i].Direction == d {
			return &c.Decisions[i]
		}
	}
	return nil
}

func (d Deferred) String() string {
	return fmt.Sprintf("%v of %v is left to %s", d.Rate, d.Direction, d.To.Title())
}

// DefaultLimit is a limit of which nothing but the rate is requested.
func DefaultLimit(rate units.BitRate) *Limit {
	return &Limit{
		Rate: rate, Horizon: DefaultHorizon, LightShare: DefaultLightShare, HeavyThreshold: DefaultHeavyThreshold,
		Policy: terms.PolicyStrict, Queue: terms.QueueAuto, Mode: terms.ModeAuto, Place: terms.PlaceAuto,
	}
}

// Limited says whether a limit is requested in either direction.
func (c *Config) Limited() bool { return c.Egress != nil || c.Ingress != nil }

// Left says which limits are left to others, "" if none is.
func (c *Config) Left() string {
	texts := make([]string, len(c.Deferred))
	for i, d := range c.Deferred {
		texts[i] = d.String()
	}
	return strings.Join(texts, ", ")
}

// Of returns the configuration for one of so many interfaces of a pod.
func (c *Config) Of(interfaces int) *Config {
	out := *c
	if out.Among = 0; out.Shared && interfaces > 1 {
		out.Among = interfaces
	}
	return &out
}

// Part returns the share that one interface has in the limit of a direction, nil if there
// is none.
func (c *Config) Part(d terms.Direction) *Limit {
	whole := c.Limit(d)
	if whole == nil || c.Among < 2 {
		return whole
	}
	out := *whole
	out.Rate /= units.BitRate(c.Among)
	out.Burst /= units.Bytes(c.Among)
	return &out
}

// Limit returns the limit of a direction, nil if there is none.
func (c *Config) Limit(d terms.Direction) *Limit {
	if d == terms.Egress {
		return c.Egress
	}
	return c.Ingress
}

// SetLimit sets the limit of a direction; nil takes it away.
func (c *Config) SetLimit(d terms.Direction, l *Limit) {
	if d == terms.Egress {
		c.Egress = l
	} else {
		c.Ingress = l
	}
}
