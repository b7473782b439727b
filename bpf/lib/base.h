/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What every other header needs: kernel types, helpers, and access to memory that other CPUs write.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "abi.h"
#include "packet.h"

#define bool _Bool
#define true 1
#define false 0

/* Accesses to shared words are single loads and stores: the compiler may not split, repeat or merge
 * them. Aliases are allowed because a struct pw_cell is read as one word. */
typedef __u32 __attribute__((may_alias)) pw_shared_u32;
typedef __u64 __attribute__((may_alias)) pw_shared_u64;

#define PW_READ32(p) (*(const volatile pw_shared_u32 *)(p))
#define PW_READ64(p) (*(const volatile pw_shared_u64 *)(p))
#define PW_WRITE32(p, v) (*(volatile pw_shared_u32 *)(p) = (v))
#define PW_WRITE64(p, v) (*(volatile pw_shared_u64 *)(p) = (v))

/* Forgets what the compiler knows of memory, and with it the verifier: what is loaded again is just a
 * number. Code behind it is verified once, not once for every way that leads there. */
#define pw_forget() asm volatile("" ::: "memory")

#define pw_likely(x) __builtin_expect(!!(x), 1)
#define pw_unlikely(x) __builtin_expect(!!(x), 0)
