// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

// MeterRate and SketchRate are what Compute sets, for tests of the arithmetic
// alone.
var (
	MeterRate  = meterRate
	SketchRate = sketchRate
)
