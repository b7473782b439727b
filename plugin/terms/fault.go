// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms

import "time"

// Fault is what is wrong with a limit, a value for each cause. It is judged in one place,
// whoever tells of it.
type Fault uint8

// The faults.
const (
	FaultUnshaped    Fault = iota + 1 // the pod runs without its limit
	FaultHostNetwork                  // it can have none: its interfaces are the node's
	FaultUncovered                    // another device of the pod has no limit
	FaultPast                         // packets go past the limit
	FaultDiffers                      // what is attached is not what should be; each cause is a difference
	FaultUnread                       // it cannot be looked at
	FaultLost                         // no record tells of it
	FaultLeft                         // its pod is gone, or may be
	FaultOverdue                      // the agent cannot find the pod's network
	FaultExceeded                     // the pod carried more
	FaultTaken                        // another party takes the limit away again and again
	FaultHeld                         // so it does, and the limit holds all the same
)

// Trouble is one thing that is wrong with the limit of a pod.
type Trouble struct {
	Fault Fault
	// Pod is namespace/name, or what else names it; Container is its sandbox, "" if that is not known.
	Pod, Container string
	// Since is when it was seen first, zero if that is not known.
	Since time.Time
	// Causes say why it is so, and Cure what to do.
	Causes []string
	Cure   string
}
