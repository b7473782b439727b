//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Copyright Authors of podweir */

/* The wire meter's programs. They share not a line with what they measure. */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* wiremeter.go has this number, too: 131 s. */
#define BUCKETS (1 << 17)

/* IPV6_TLV_JUMBO (RFC 2675) marks the header that BIG TCP puts into packets of more than 64 kB
 * (net/ipv6/ip6_output.c, ip6_xmit) and takes out again when it segments them: it never is on a
 * wire. Newer kernels do without it. */
#define JUMBO_OPTION 0xc2
#define JUMBO_BYTES 8

struct bucket {
	__u64 bytes;
	__u64 packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket);
} pwlab_wire SEC(".maps");

/* The device whose packets the socket filter counts. */
const volatile __u32 ifindex;

/* The bytes before the payload of TCP or UDP over IPv4 with options or IPv6 with at most a
 * hop-by-hop header, which each segment carries; 0 of other packets, and of those that are cut
 * short. What of a packet is a jumbo header goes into jumbo. */
static __always_inline __u32 header_bytes(struct __sk_buff *skb, __u32 *jumbo)
{
	__u32 head = ETH_HLEN;
	__u8 proto, hop_by_hop[3], first;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, head, &first, 1) ||
		    bpf_skb_load_bytes(skb, head + 9, &proto, 1))
			return 0;
		head += (first & 0xf) * 4u;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, head + 6, &proto, 1))
			return 0;
		head += 40;
		if (proto == IPPROTO_HOPOPTS) {
			if (bpf_skb_load_bytes(skb, head, hop_by_hop, sizeof(hop_by_hop)))
				return 0;
			proto = hop_by_hop[0];
			/* In units of 8 bytes, of which the first is not counted (RFC 8200). */
			if (hop_by_hop[2] == JUMBO_OPTION)
				*jumbo = JUMBO_BYTES;
			else
				head += (hop_by_hop[1] + 1u) * 8;
		}
	} else {
		return 0;
	}
	if (proto == IPPROTO_UDP)
		return head + 8;
	if (proto != IPPROTO_TCP || bpf_skb_load_bytes(skb, head + *jumbo + 12, &first, 1))
		return 0;
	return head + (first >> 4) * 4u;
}

/* Adds a packet to the bucket of this millisecond. Every segment but the first carries a copy of
 * the headers. */
static __always_inline void count(struct __sk_buff *skb)
{
	__u32 key = (__u32)(bpf_ktime_get_ns() / 1000000) % BUCKETS, jumbo = 0;
	__u64 bytes = skb->len, segments = skb->gso_segs;
	struct bucket *b = bpf_map_lookup_elem(&pwlab_wire, &key);

	if (!b)
		return;
	if (segments > 1) {
		bytes += (segments - 1) * header_bytes(skb, &jumbo);
		bytes -= jumbo;
	}
	__sync_fetch_and_add(&b->bytes, bytes);
	__sync_fetch_and_add(&b->packets, 1);
}

/* The meter stands on other people's hooks: whoever comes next decides. */
SEC("tc")
int received(struct __sk_buff *skb)
{
	count(skb);
	return TC_ACT_UNSPEC;
}

/* The socket gets nothing of any packet. */
SEC("socket")
int delivered(struct __sk_buff *skb)
{
	if (skb->ifindex == ifindex)
		count(skb);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
