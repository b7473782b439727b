// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import "github.com/podweir/podweir/plugin/terms"

// Words of the design; each is one type, of package terms.
type (
	// Direction is [terms.Direction].
	Direction = terms.Direction
	// Policy is [terms.Policy].
	Policy = terms.Policy
	// Queue is [terms.Queue].
	Queue = terms.Queue
	// Mode is [terms.Mode].
	Mode = terms.Mode
	// Place is [terms.Place].
	Place = terms.Place
	// Shaper is [terms.Shaper].
	Shaper = terms.Shaper
	// Side is [terms.Side].
	Side = terms.Side
	// Hook is [terms.Hook].
	Hook = terms.Hook
	// HookKind is [terms.HookKind].
	HookKind = terms.HookKind
)

// The values of package terms.
const (
	Egress  = terms.Egress
	Ingress = terms.Ingress

	PolicyStrict    = terms.PolicyStrict
	PolicyElephants = terms.PolicyElephants
	PolicyFlat      = terms.PolicyFlat

	QueueAuto = terms.QueueAuto
	QueueTBF  = terms.QueueTBF
	QueueHTB  = terms.QueueHTB
	QueueFQ   = terms.QueueFQ
	QueueNone = terms.QueueNone

	ModeAuto           = terms.ModeAuto
	ModeQdisc          = terms.ModeQdisc
	ModeTCXPodSide     = terms.ModeTCXPodSide
	ModeTCXHostSide    = terms.ModeTCXHostSide
	ModeClsactPodSide  = terms.ModeClsactPodSide
	ModeClsactHostSide = terms.ModeClsactHostSide

	PlaceAuto      = terms.PlaceAuto
	PlaceHost      = terms.PlaceHost
	PlaceIFB       = terms.PlaceIFB
	PlacePreferIFB = terms.PlacePreferIFB

	ShaperPodweir = terms.ShaperPodweir
	ShaperCilium  = terms.ShaperCilium
	ShaperCalico  = terms.ShaperCalico

	SidePod  = terms.SidePod
	SideHost = terms.SideHost
	SideIFB  = terms.SideIFB

	HookNone     = terms.HookNone
	HookOwnQdisc = terms.HookOwnQdisc
	HookEgress   = terms.HookEgress
	HookIngress  = terms.HookIngress

	HookKindAuto   = terms.HookKindAuto
	HookKindClsact = terms.HookKindClsact
	HookKindTCX    = terms.HookKindTCX
)

// Directions lists both directions in the order they are set up.
var Directions = terms.Directions
