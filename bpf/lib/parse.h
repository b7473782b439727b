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
/* RFC 8200 section 4.1 orders seven extension headers, one of which may come twice. */
#define PW_IPV6_EXTENSIONS 8
/* Bounds every offset for the verifier: 8 extension headers of at most 2048 bytes and the rest. */
#define PW_MAX_OFFSET 0x7000

#define PW_IPV4_FRAGMENT 0x3fff /* more fragments, or an offset */
#define PW_IPV6_FLOW_HDR 40
#define PW_ND_HOP_LIMIT 255 /* RFC 4861 section 7.1: anything else is not neighbour discovery */
#define PW_ND_FIRST 133
#define PW_ND_LAST 137
#define PW_TCP_MIN_HEADER 20
#define PW_UDP_HEADER 8

struct pw_packet {
	struct pw_flow flow;
	__u16 l3; /* offset of the IP header; valid if is_ip */
	__u16 headers; /* bytes from the first header to the end of the transport header */
	__u8 tos; /* traffic class; its low two bits are the ECN field */
	bool is_ip;
	bool is_ipv6;
};

struct pw_vlan_header {
	__be16 tci;
	__be16 proto;
};

struct pw_extension {
	__u8 next;
	__u8 length;
	__u8 rest[6];
};

/* len bytes of the packet from off on: in place if they are in the linear part, else copied to buf.
 * NULL if the packet ends before them. */
static __always_inline const void *parse_bytes(struct __sk_buff *skb, __u32 off, void *buf,
					       const __u32 len)
{
	const void *data = (const void *)(long)skb->data;
	const void *end = (const void *)(long)skb->data_end;

	if (off > PW_MAX_OFFSET)
		return 0;
	if (pw_likely(data + off + len <= end))
		return data + off;
	if (bpf_skb_load_bytes(skb, off, buf, len))
		return 0;
	return buf;
}

static __always_inline void parse_ports(struct __sk_buff *skb, __u32 off, struct pw_packet *pkt)
{
	struct {
		__be16 source, dest;
	} buf;
	const typeof(buf) *ports = parse_bytes(skb, off, &buf, sizeof(buf));

	if (!ports)
		return;
	pkt->flow.sport = ports->source;
	pkt->flow.dport = ports->dest;
	pkt->flow.kind = PW_FLOW_PORTS;
}

/* The length of the TCP header, from its data offset field. */
static __always_inline __u32 parse_tcp_length(struct __sk_buff *skb, __u32 off)
{
	__u8 buf = 0;
	const __u8 *field = parse_bytes(skb, off + 12, &buf, sizeof(buf));
	__u32 length = field ? (*field >> 4) * 4U : 0;

	return length < PW_TCP_MIN_HEADER ? PW_TCP_MIN_HEADER : length;
}

static __always_inline bool parse_is_nd(struct __sk_buff *skb, __u32 off, __u8 hop_limit)
{
	__u8 buf = 0;
	const __u8 *type;

	if (hop_limit != PW_ND_HOP_LIMIT)
		return false;
	type = parse_bytes(skb, off, &buf, sizeof(buf));
	return type && *type >= PW_ND_FIRST && *type <= PW_ND_LAST;
}

/* off is where the header of the transport protocol starts. */
static __always_inline void parse_transport(struct __sk_buff *skb, __u32 off, __u8 protocol,
					    __u8 hop_limit, struct pw_packet *pkt)
{
	pkt->flow.protocol = protocol;
	pkt->headers = (__u16)off;
	switch (protocol) {
	case IPPROTO_TCP:
		parse_ports(skb, off, pkt);
		pkt->headers = (__u16)(off + parse_tcp_length(skb, off));
		break;
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		parse_ports(skb, off, pkt);
		pkt->headers = (__u16)(off + PW_UDP_HEADER);
		break;
	case IPPROTO_ICMPV6:
		if (pkt->is_ipv6 && parse_is_nd(skb, off, hop_limit))
			pkt->flow.kind = PW_FLOW_CONTROL;
		break;
	default:
		break;
	}
}

static __always_inline void parse_ipv4(struct __sk_buff *skb, __u32 off, struct pw_packet *pkt)
{
	struct iphdr buf;
	const struct iphdr *ip = parse_bytes(skb, off, &buf, sizeof(buf));
	__u32 length;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return;
	pkt->is_ip = true;
	pkt->l3 = (__u16)off;
	pkt->tos = ip->tos;
	pkt->flow.src[2] = bpf_htonl(0xffff);
	pkt->flow.src[3] = ip->saddr;
	pkt->flow.dst[2] = bpf_htonl(0xffff);
	pkt->flow.dst[3] = ip->daddr;
	pkt->flow.kind = PW_FLOW_HOSTS;
	length = ip->ihl * 4U;
	pkt->headers = (__u16)(off + length);
	/* All fragments of a datagram are one flow, or the first, which alone has the ports, could
	 * wait behind the rest. */
	if (pw_unlikely(ip->frag_off & bpf_htons(PW_IPV4_FRAGMENT)))
		return;
	parse_transport(skb, off + length, ip->protocol, ip->ttl, pkt);
}

static __always_inline bool parse_is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_AH || protocol == IPPROTO_MH;
}

static __always_inline void parse_ipv6(struct __sk_buff *skb, __u32 off, struct pw_packet *pkt)
{
	struct ipv6hdr buf;
	const struct ipv6hdr *ip = parse_bytes(skb, off, &buf, sizeof(buf));
	__u8 protocol, hop_limit;

	if (!ip || ip->version != 6)
		return;
	pkt->is_ip = true;
	pkt->is_ipv6 = true;
	pkt->l3 = (__u16)off;
	pkt->tos = (__u8)(ip->priority << 4 | ip->flow_lbl[0] >> 4);
	__builtin_memcpy(pkt->flow.src, &ip->saddr, sizeof(pkt->flow.src));
	__builtin_memcpy(pkt->flow.dst, &ip->daddr, sizeof(pkt->flow.dst));
	pkt->flow.kind = PW_FLOW_HOSTS;
	protocol = ip->nexthdr;
	hop_limit = ip->hop_limit;
	off += PW_IPV6_FLOW_HDR;

#pragma clang loop unroll(disable)
	for (int i = 0; i < PW_IPV6_EXTENSIONS; i++) {
		struct pw_extension ext_buf;
		const struct pw_extension *ext;

		if (pw_likely(!parse_is_extension(protocol)))
			break;
		ext = parse_bytes(skb, off, &ext_buf, sizeof(ext_buf));
		if (!ext)
			break;
		/* AH counts words of 4 bytes less 2 (RFC 4302), the others 8 bytes less 1. */
		off += protocol == IPPROTO_AH ? (ext->length + 2U) * 4 : (ext->length + 1U) * 8;
		protocol = ext->next;
	}
	pkt->headers = (__u16)off;
	if (pw_unlikely(protocol == IPPROTO_FRAGMENT))
		return;
	parse_transport(skb, off, protocol, hop_limit, pkt);
}

static __always_inline bool parse_is_vlan(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* Fills pkt; pkt->flow says as much as the packet does. */
static __always_inline void parse_packet(struct __sk_buff *skb, bool l3_only, struct pw_packet *pkt)
{
	__be16 proto = (__be16)skb->protocol;
	__u32 off = 0;

	__builtin_memset(pkt, 0, sizeof(*pkt));
	pkt->flow.kind = PW_FLOW_ETHER;
	if (pw_likely(!l3_only)) {
		struct ethhdr eth_buf;
		const struct ethhdr *eth = parse_bytes(skb, 0, &eth_buf, sizeof(eth_buf));

		if (!eth)
			return;
		proto = eth->h_proto;
		off = ETH_HLEN;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < PW_VLAN_TAGS; i++) {
		struct pw_vlan_header tag_buf;
		const struct pw_vlan_header *tag;

		if (pw_likely(!parse_is_vlan(proto)))
			break;
		tag = parse_bytes(skb, off, &tag_buf, sizeof(tag_buf));
		if (!tag)
			break;
		proto = tag->proto;
		off += sizeof(*tag);
	}
	pkt->flow.ethertype = proto;
	pkt->headers = (__u16)off;
	if (proto == bpf_htons(ETH_P_IP))
		parse_ipv4(skb, off, pkt);
	else if (proto == bpf_htons(ETH_P_IPV6))
		parse_ipv6(skb, off, pkt);
	else if (proto == bpf_htons(ETH_P_ARP))
		pkt->flow.kind = PW_FLOW_CONTROL;
}
