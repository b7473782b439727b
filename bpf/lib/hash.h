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
#define PW_FLOW_BITS(id, row) ((__u32)(id) >> ((row) * PW_FLOW_COL_BITS))
#define PW_SLOT_SHIFT (PW_FLOW_ROWS * PW_FLOW_COL_BITS)

static __always_inline __u64 hash_word(const __u64 *keys, __u64 sum, __u32 index, __u32 word)
{
	return sum + keys[index + 1] * word;
}

/* IPv4 leaves out the six words that are the same in each IPv4 flow; the EtherType in the last word
 * keeps the two families apart. */
static __always_inline __u32 hash_half(const struct pw_flow *flow, bool is_ipv6, const __u64 *keys)
{
	__u32 ports = (__u32)flow->sport | (__u32)flow->dport << 16;
	__u32 kind = flow->protocol | (__u32)flow->kind << 8 | (__u32)flow->ethertype << 16;
	__u64 sum = keys[0];

	sum = hash_word(keys, sum, 3, flow->src[3]);
	sum = hash_word(keys, sum, 7, flow->dst[3]);
	sum = hash_word(keys, sum, 8, ports);
	sum = hash_word(keys, sum, 9, kind);
	if (is_ipv6) {
		sum = hash_word(keys, sum, 0, flow->src[0]);
		sum = hash_word(keys, sum, 1, flow->src[1]);
		sum = hash_word(keys, sum, 2, flow->src[2]);
		sum = hash_word(keys, sum, 4, flow->dst[0]);
		sum = hash_word(keys, sum, 5, flow->dst[1]);
		sum = hash_word(keys, sum, 6, flow->dst[2]);
	}
	return (__u32)(sum >> 32);
}

static __always_inline __u64 hash_flow(const struct pw_flow *flow, bool is_ipv6,
				       const __u64 (*keys)[PW_HASH_KEYS])
{
	return (__u64)hash_half(flow, is_ipv6, keys[0]) << 32 | hash_half(flow, is_ipv6, keys[1]);
}
