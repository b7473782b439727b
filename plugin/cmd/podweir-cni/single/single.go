// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package single leaves the Go runtime one processor. It imports nothing, so that it is initialised before
// nearly all other packages: later, memory that they have used for the other processors is wasted.
package single

import "runtime"

// A process that does one thing after the other, for a few milliseconds, has no use for more: the runtime starts
// threads that find nothing to do, which takes a tenth of the time of 100 ADDs at once (measured).
func init() { runtime.GOMAXPROCS(1) }
