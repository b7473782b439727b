// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import "math/bits"

// activePeriodShift is how long a period of Active is, as a power of two in ns.
const activePeriodShift = 31

// Active has a bit for each heavy flow, by its hash, of a period and of the one
// before it, as in bpf/lib/active.h.
type Active struct {
	Period      uint32
	Before, Now uint64
}

func (a *Active) note(id FlowID, nowNS uint64) {
	period := uint32(nowNS >> activePeriodShift)
	switch passed := int32(period - a.Period); {
	case passed == 1:
		*a = Active{Period: period, Before: a.Now}
	case passed > 1:
		*a = Active{Period: period}
	}
	a.Now |= 1 << (id >> 58)
}

// equal is what a flow would have if it and all heavy ones had the same.
func (a *Active) equal() uint32 {
	set := uint64(bits.OnesCount64(a.Now | a.Before))
	return uint32(EstimateOne * (64 - set) / (64*set + 64 - set))
}
