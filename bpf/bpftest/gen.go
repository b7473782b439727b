// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpftest

//go:generate go tool bpf2go -go-package bpftest -tags linux -target bpfel -cc clang-19 -no-global-types -cflags "-O2 -mcpu=v3 -std=gnu11 -nostdinc -Wall -Wextra -Werror -Wshadow -Wimplicit-int-conversion -Wenum-conversion -Wimplicit-fallthrough" bpftest bpftest.bpf.c -- -I../headers -I../lib
