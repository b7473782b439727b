// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf

//go:generate go tool bpf2go -go-package bpf -tags linux -target bpfel -cc clang-19 -cflags "-O2 -mcpu=v3 -std=gnu11 -nostdinc -Wall -Wextra -Werror -Wshadow -Wimplicit-int-conversion -Wenum-conversion -Wimplicit-fallthrough" -no-global-types Podweir podweir.bpf.c -- -Iheaders -Ilib
