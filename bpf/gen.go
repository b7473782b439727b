// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf

//go:generate go tool bpf2go -go-package bpf -tags linux -target bpfel -cc clang-19 -cflags "-O2 -mcpu=v3 -std=gnu11 -nostdinc -Wall -Wextra -Werror -Wshadow -Wimplicit-int-conversion -Wenum-conversion -Wimplicit-fallthrough" -type pw_heavy -type pw_flow -type pw_cell -type pw_rate -type pw_subnet -type pw_policy -type pw_direction -type pw_subnets_mode -type pw_disposition -type pw_flow_kind Podweir podweir.bpf.c -- -Iheaders -Ilib

// Line and function information would be half of the object, and parsing it half
// of what ADD does before the first load (4.4 against 1.5 ms); the loader drops it
// anyway, so that the kernel keeps none for each pod.
//go:generate llvm-objcopy-19 --remove-section=.BTF.ext --remove-section=.rel.BTF.ext podweir_bpfel.o
