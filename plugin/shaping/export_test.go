// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

// SketchRate is what Compute sets, for tests of the arithmetic alone.
var SketchRate = sketchRate
