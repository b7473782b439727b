/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What every other header needs: kernel types, helpers, access to memory that other CPUs write, and arithmetic without
 * branches. */
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

/* Masks what indexes an array, where the verifier sees it. */
#ifdef __bpf__
#define pw_mask(value, mask) asm volatile("%0 &= %1" : "+r"(value) : "i"(mask))
#else
#define pw_mask(value, mask) ((value) &= (mask))
#endif

#define pw_likely(x) __builtin_expect(!!(x), 1)
#define pw_unlikely(x) __builtin_expect(!!(x), 0)

/* All ones if a < b, else 0, for a and b below 2^63. Without branches: each would double what the
 * verifier has to walk, and the processor cannot predict them. */
static __always_inline __u64 pw_less(__u64 a, __u64 b)
{
	__u64 mask = a - b;

	/* Or the compiler makes a branch of it, and of what is done with it. */
	asm volatile("" : "+r"(mask));
	mask = (__u64)((__s64)mask >> 63);
	asm volatile("" : "+r"(mask));
	return mask;
}

static __always_inline __u64 pw_min(__u64 a, __u64 b)
{
	return b + ((a - b) & pw_less(a, b));
}

/* What a exceeds b by, if it does. */
static __always_inline __u64 pw_more(__u64 a, __u64 b)
{
	return (a - b) & pw_less(b, a);
}
