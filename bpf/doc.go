// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package bpf holds the BPF programs and the Go bindings that bpf2go makes of
// them.
//
// The source is podweir.bpf.c, with one idea per header under lib; what Go and
// C agree on is lib/abi.h. The object is committed, so that a build needs no
// clang; check-generate.sh proves that it belongs to the source.
package bpf
