// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package units has the typed rates, sizes and shares that podweir computes
// with, and their checked conversions.
package units

// BitRate is a rate in bits per second, the unit of the pod annotations.
type BitRate uint64

// ByteRate is a rate in bytes per second, the unit of the kernel's qdiscs.
type ByteRate uint64

// Bytes is a size in bytes.
type Bytes uint64

// PerMille is a share in thousandths.
type PerMille uint32

// The range of rates that podweir enforces (design.md, ruling 1).
const (
	MinRate BitRate = 1_000
	MaxRate BitRate = 400_000_000_000
)
