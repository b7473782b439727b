/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The flow hash: 64 bits, keyed per pod and direction.
 *
 * Multilinear hashing, (k0 + sum of k_i * w_i) >> 32 over 32-bit words with random 64-bit keys, is
 * strongly universal (Dietzfelbinger, "Universal hashing and k-wise independent random variables via
 * integer arithmetic without primes", STACS 1996; Lemire and Kaser, "Strongly universal string
 * hashing is fast", Computer Journal 57, 2014, for vectors): the hashes of two flows are independent
 * and uniform, and so are disjoint ranges of their bits. So the rows of the sketch are independent,
 * and a pod that does not know the keys cannot aim one flow at another.
 */
#pragma once

#include "base.h"

/* Which bits of which half choose what. */
#define PW_ROW_BITS(id, row) ((__u32)((id) >> 32 >> ((row) * PW_SKETCH_COL_BITS)))
/* What chooses the upper half of the columns, in each row. */
#define PW_ROWS_UPPER                                                         \
	((1ULL << 2 * PW_SKETCH_COL_BITS | 1ULL << PW_SKETCH_COL_BITS | 1ULL) \
	 << (32 + PW_SKETCH_COL_BITS - 1))
#define PW_FLOW_BITS(id, row) ((__u32)(id) >> ((row) * PW_FLOW_COL_BITS))
#define PW_SLOT_SHIFT (PW_FLOW_ROWS * PW_FLOW_COL_BITS)

static __always_inline void hash_word(const __u64 (*keys)[2], __u64 sum[2], __u32 key, __u32 word)
{
	sum[0] += keys[key][0] * word;
	sum[1] += keys[key][1] * word;
}

/* IPv4 leaves out the six words that are the same in each IPv4 flow; the EtherType in the last word
 * keeps the two families apart. */
static __always_inline __u64 hash_flow(const struct pw_flow *flow, bool is_ipv6,
				       const __u64 (*keys)[2])
{
	__u32 ports = (__u32)flow->sport | (__u32)flow->dport << 16;
	__u32 kind = flow->protocol | (__u32)flow->kind << 8 | (__u32)flow->ethertype << 16;
	const __u64(*last)[2] = keys + PW_HASH_KEYS_IPV6;
	__u64 sum[2] = { last[0][0], last[0][1] };

	hash_word(last, sum, 1, flow->src[3]);
	hash_word(last, sum, 2, flow->dst[3]);
	hash_word(last, sum, 3, ports);
	hash_word(last, sum, 4, kind);
	if (is_ipv6) {
#pragma clang loop unroll(full)
		for (__u32 i = 0; i < 3; i++) {
			hash_word(keys, sum, i, flow->src[i]);
			hash_word(keys, sum, 3 + i, flow->dst[i]);
		}
	}
	return sum[0] >> 32 << 32 | sum[1] >> 32;
}
