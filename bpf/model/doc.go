// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package model is the executable reference of the dataplane: the arithmetic
// of bpf/lib in Go, packet by packet, for one CPU.
//
// It is written to be read next to the C, header by file, and to be run
// against it: the tests of package bpf send the same packets through
// BPF_PROG_TEST_RUN and through a [Direction], and compare.
package model
