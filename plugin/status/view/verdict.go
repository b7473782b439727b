// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view

// From which share of its limit a direction is at its limit, and from which part of
// what is offered one flow offers most.
const (
	atLimitShare = 0.9
	mostOfIt     = 0.5
)

// Verdict says why a direction is at its limit; "" if it is not.
func (r *PodRate) Verdict() string {
	if r.Share() < atLimitShare {
		return ""
	}
	for _, rate := range r.FlowBitsPerSecond {
		if r.Part(rate) >= mostOfIt {
			return "at its limit; one flow offers most of the traffic:"
		}
	}
	return "at its limit; no flow offers most of it: the limit is too low for all of them"
}
