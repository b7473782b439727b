/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* IPv4 with options, IPv6 with extension headers, fragments of both. */
#pragma once

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "base.h"
#include "parse_at.h"

#define PW_IPV4_FRAGMENT 0x3fff /* more fragments, or an offset */
#define PW_IPV4_MAPPED bpf_htonl(0xffff)
#define PW_IPV6_HEADER 40
/* RFC 8200 section 4.1: hop-by-hop, destination (twice), routing, authentication. */
#define PW_IPV6_EXTENSIONS 5

/* What the programs read of an extension header. */
struct pw_extension {
	__u8 next;
	__u8 length;
};

static __always_inline void parse_ipv4(struct __sk_buff *skb, struct pw_packet *pkt)
{
	struct iphdr buf;
	const struct iphdr *ip = parse_at(skb, pkt->l3, &buf, sizeof(buf));
	__u32 first, length;

	if (!ip)
		return;
	first = *(const __u8 *)ip;
	length = (first & 0xf) * 4;
	if (first >> 4 != 4 || length < sizeof(*ip))
		return;
	pkt->flow.src[2] = PW_IPV4_MAPPED;
	pkt->flow.src[3] = ip->saddr;
	pkt->flow.dst[2] = PW_IPV4_MAPPED;
	pkt->flow.dst[3] = ip->daddr;
	pkt->flow.kind = PW_FLOW_HOSTS;
	pkt->family = 4;
	pkt->tos = ip->tos;
	pkt->headers = (__u16)(pkt->l3 + length);
	/* All fragments of a datagram are one flow, or the first, which alone has the ports, could
	 * overtake the rest. */
	if (pw_unlikely(ip->frag_off & bpf_htons(PW_IPV4_FRAGMENT)))
		return;
	pkt->flow.protocol = ip->protocol;
	pkt->l4 = pkt->headers;
}

static __always_inline bool parse_is_extension(__u8 protocol)
{
	const __u64 extensions = 1ULL << IPPROTO_HOPOPTS | 1ULL << IPPROTO_ROUTING |
				 1ULL << IPPROTO_DSTOPTS | 1ULL << IPPROTO_AH;

	return protocol < 64 && (extensions >> protocol & 1);
}

/* Walks the extension headers from pkt->l4 on. */
static __always_inline void parse_extensions(struct __sk_buff *skb, struct pw_packet *pkt)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < PW_IPV6_EXTENSIONS; i++) {
		__u8 protocol = pkt->flow.protocol;
		const struct pw_extension *ext;
		struct pw_extension buf;

		if (!parse_is_extension(protocol))
			break;
		ext = parse_at(skb, pkt->l4, &buf, sizeof(buf));
		if (!ext)
			break;
		/* AH counts words of 4 bytes less 2 (RFC 4302), the others 8 bytes less 1. */
		pkt->l4 += protocol == IPPROTO_AH ? (ext->length + 2) * 4 : (ext->length + 1) * 8;
		pkt->flow.protocol = ext->next;
		pw_forget();
	}
	pkt->headers = pkt->l4;
}

static __always_inline void parse_ipv6(struct __sk_buff *skb, struct pw_packet *pkt)
{
	struct ipv6hdr buf;
	const struct ipv6hdr *ip = parse_at(skb, pkt->l3, &buf, sizeof(buf));

	if (!ip || ip->version != 6)
		return;
	__builtin_memcpy(pkt->flow.src, &ip->saddr, sizeof(pkt->flow.src));
	__builtin_memcpy(pkt->flow.dst, &ip->daddr, sizeof(pkt->flow.dst));
	pkt->flow.kind = PW_FLOW_HOSTS;
	pkt->flow.protocol = ip->nexthdr;
	pkt->family = 6;
	pkt->tos = (__u8)(ip->priority << 4 | ip->flow_lbl[0] >> 4);
	pkt->hop_limit = ip->hop_limit;
	pkt->l4 = pkt->l3 + PW_IPV6_HEADER;
	pw_forget();
	parse_extensions(skb, pkt);
	if (pw_unlikely(pkt->flow.protocol == IPPROTO_FRAGMENT)) {
		pkt->flow.protocol = 0;
		pkt->l4 = 0;
	}
}
