/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From packet bytes to a flow. Every packet gets one: what cannot be read any further belongs to the
 * flow of what could be read, so nothing is unmetered. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "base.h"

/* Tags in the packet itself; the one that hardware acceleration moved to skb->vlan_tci is not there,
 * and what follows it is where an untagged packet has it. */
#define PW_VLAN_TAGS 2
/* RFC 8200 section 4.1: hop-by-hop, destination (twice), routing, authentication. */
#define PW_IPV6_EXTENSIONS 5
/* Bounds every offset for the verifier: 5 extension headers of at most 2048 bytes, and the rest. */
#define PW_MAX_OFFSET 0x3fff

#define PW_IPV4_FRAGMENT 0x3fff /* more fragments, or an offset */
#define PW_IPV4_MAPPED bpf_htonl(0xffff)
#define PW_IPV6_HEADER 40
#define PW_ND_HOP_LIMIT 255 /* RFC 4861 section 7.1: anything else is not neighbour discovery */
#define PW_ND_FIRST 133
#define PW_ND_LAST 137
#define PW_TCP_MIN_HEADER 20
#define PW_TCP_OFFSET 12 /* of the byte that holds the header length */
#define PW_UDP_HEADER 8

struct pw_vlan_header {
	__be16 tci;
	__be16 proto;
};

/* What the programs read of an extension header. */
struct pw_extension {
	__u8 next;
	__u8 length;
};

struct pw_ports {
	__be16 source;
	__be16 dest;
};

/* size bytes of the packet from off on: in place if they are in the linear part, else copied to buf.
 * NULL if the packet ends before them. */
static __always_inline const void *parse_at(struct __sk_buff *skb, __u32 off, void *buf,
					    const __u32 size)
{
	const void *data = (const void *)(long)skb->data;
	const void *end = (const void *)(long)skb->data_end;

	if (off > PW_MAX_OFFSET)
		return 0;
	data += off;
	if (pw_likely(data + size <= end))
		return data;
	return bpf_skb_load_bytes(skb, off, buf, size) ? 0 : buf;
}

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

static __always_inline bool parse_has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

static __always_inline void parse_transport(struct __sk_buff *skb, struct pw_packet *pkt)
{
	struct pw_ports buf;
	const struct pw_ports *ports = parse_at(skb, pkt->l4, &buf, sizeof(buf));
	__u8 protocol = pkt->flow.protocol, type;

	if (!ports)
		return;
	if (pw_likely(parse_has_ports(protocol))) {
		pkt->flow.sport = ports->source;
		pkt->flow.dport = ports->dest;
		pkt->flow.kind = PW_FLOW_PORTS;
		return;
	}
	type = *(const __u8 *)ports;
	if (protocol == IPPROTO_ICMPV6 && pkt->family == 6 && pkt->hop_limit == PW_ND_HOP_LIMIT &&
	    type >= PW_ND_FIRST && type <= PW_ND_LAST)
		pkt->flow.kind = PW_FLOW_CONTROL;
}

static __always_inline bool parse_is_vlan(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* Sets pkt->l3 and the EtherType. */
static __always_inline void parse_link(struct __sk_buff *skb, struct pw_packet *pkt)
{
	struct ethhdr buf;
	const struct ethhdr *eth = parse_at(skb, 0, &buf, sizeof(buf));

	if (!eth)
		return;
	pkt->flow.ethertype = eth->h_proto;
	pkt->l3 = ETH_HLEN;
#pragma clang loop unroll(disable)
	for (int i = 0; i < PW_VLAN_TAGS; i++) {
		const struct pw_vlan_header *tag;
		struct pw_vlan_header tag_buf;

		if (pw_likely(!parse_is_vlan(pkt->flow.ethertype)))
			break;
		tag = parse_at(skb, pkt->l3, &tag_buf, sizeof(tag_buf));
		if (!tag)
			break;
		pkt->flow.ethertype = tag->proto;
		pkt->l3 += sizeof(*tag);
		pw_forget();
	}
}

/* Fills pkt; pkt->flow says as much as the packet does. */
static __always_inline void parse_packet(struct __sk_buff *skb, bool l3_only, struct pw_packet *pkt)
{
	__builtin_memset(pkt, 0, sizeof(*pkt));
	pkt->flow.kind = PW_FLOW_ETHER;
	if (l3_only)
		pkt->flow.ethertype = (__be16)skb->protocol;
	else
		parse_link(skb, pkt);
	pkt->headers = pkt->l3;
	pw_forget();
	if (pw_likely(pkt->flow.ethertype == bpf_htons(ETH_P_IP)))
		parse_ipv4(skb, pkt);
	else if (pkt->flow.ethertype == bpf_htons(ETH_P_IPV6))
		parse_ipv6(skb, pkt);
	else if (pkt->flow.ethertype == bpf_htons(ETH_P_ARP))
		pkt->flow.kind = PW_FLOW_CONTROL;
	pw_forget();
	if (pkt->l4)
		parse_transport(skb, pkt);
	pw_forget();
}

/* Bytes up to the payload of the transport protocol, for a packet that was parsed. */
static __always_inline __u32 parse_header_bytes(struct __sk_buff *skb, const struct pw_packet *pkt)
{
	__u8 field = 0;
	__u32 length;

	if (pkt->flow.kind != PW_FLOW_PORTS)
		return pkt->headers;
	if (pkt->flow.protocol != IPPROTO_TCP)
		return pkt->l4 + PW_UDP_HEADER;
	bpf_skb_load_bytes(skb, pkt->l4 + PW_TCP_OFFSET, &field, sizeof(field));
	length = (field >> 4) * 4U;
	return pkt->l4 + (length < PW_TCP_MIN_HEADER ? PW_TCP_MIN_HEADER : length);
}
