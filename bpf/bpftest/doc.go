// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package bpftest runs the BPF programs in tests: through BPF_PROG_TEST_RUN,
// with a clock that the test sets; it needs root.
package bpftest

import _ "embed"

//go:generate go tool bpf2go -go-package bpftest -tags linux -target bpfel -cc clang-19 -no-global-types -cflags "-O2 -mcpu=v3 -std=gnu11 -nostdinc -Wall -Wextra -Werror -Wshadow -Wimplicit-int-conversion -Wenum-conversion -Wimplicit-fallthrough" bpftest bpftest.bpf.c -- -I../headers -I../lib
//go:generate rm bpftest_bpfel.go

//go:embed bpftest_bpfel.o
var object []byte
