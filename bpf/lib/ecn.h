/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Congestion Experienced, RFC 3168. */
#pragma once

#include "base.h"
#include "parse.h"

#define PW_ECN_MASK 3
#define PW_ECN_CE 3
#define PW_IPV4_TOS_OFFSET 1
#define PW_IPV4_SUM_OFFSET 10
#define PW_IPV6_TOS_SHIFT 4 /* the traffic class starts in the low half of the first byte */

static __always_inline bool ecn_is_capable(const struct pw_packet *pkt)
{
	return pkt->family && (pkt->tos & PW_ECN_MASK);
}

static __always_inline bool ecn_set_ce_ipv4(struct __sk_buff *skb, const struct pw_packet *pkt)
{
	__u8 tos = pkt->tos | PW_ECN_CE;

	/* The header sums to the same as before, so skb->csum stays right without being told. */
	return !bpf_l3_csum_replace(skb, pkt->l3 + PW_IPV4_SUM_OFFSET, bpf_htons(pkt->tos),
				    bpf_htons(tos), sizeof(__u16)) &&
	       !bpf_skb_store_bytes(skb, pkt->l3 + PW_IPV4_TOS_OFFSET, &tos, sizeof(tos), 0);
}

static __always_inline bool ecn_set_ce_ipv6(struct __sk_buff *skb, const struct pw_packet *pkt)
{
	__u32 off = pkt->l3 + 1U;
	__u8 byte;

	if (bpf_skb_load_bytes(skb, off, &byte, sizeof(byte)))
		return false;
	byte |= PW_ECN_CE << PW_IPV6_TOS_SHIFT;
	return !bpf_skb_store_bytes(skb, off, &byte, sizeof(byte), BPF_F_RECOMPUTE_CSUM);
}

/* False if the packet could not be marked. It may be unusable then: it has to be dropped.
 * Packet pointers taken before are void. bpf_skb_ecn_set_ce is not used because it refuses packets
 * with a tag in the packet itself and clones, which is what a sender's own packets are. */
static __always_inline bool ecn_set_ce(struct __sk_buff *skb, const struct pw_packet *pkt)
{
	if ((pkt->tos & PW_ECN_MASK) == PW_ECN_CE)
		return true;
	return pkt->family == 6 ? ecn_set_ce_ipv6(skb, pkt) : ecn_set_ce_ipv4(skb, pkt);
}
