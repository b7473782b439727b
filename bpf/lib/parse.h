/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From packet bytes to a flow. Every packet gets one: what cannot be read any further belongs to the
 * flow of what could be read, so nothing is unmetered. */
#pragma once

#include <linux/if_ether.h>

#include "base.h"
#include "parse_at.h"
#include "parse_ip.h"

/* Tags in the packet itself; the one that hardware acceleration moved to skb->vlan_tci is not there,
 * and what follows it is where an untagged packet has it. */
#define PW_VLAN_TAGS 2
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

struct pw_ports {
	__be16 source;
	__be16 dest;
};

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
		pkt->control = 1;
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
	__builtin_memset(pkt, 0, __builtin_offsetof(struct pw_packet, class));
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
		pkt->control = 1;
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
