// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package bpftest runs the BPF programs in tests: through BPF_PROG_TEST_RUN,
// with a clock that the test sets; it needs root.
package bpftest
