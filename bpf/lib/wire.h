/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Wire bytes: what a packet has after segmentation, the headers once per segment. */
#pragma once

#include "base.h"
#include "parse.h"

/* On an egress hook or a qdisc: the kernel counted (qdisc_pkt_len_init). */
static __always_inline __u32 wire_counted(struct __sk_buff *skb)
{
	__u32 wire = skb->wire_len, len = skb->len;

	return wire > len ? wire : len;
}

/* Anywhere: on an ingress hook nobody counted. A packet that came from a tap or a packet socket has
 * a segment size but no number of segments yet (virtio_net_hdr_to_skb).
 * In a tunnel each segment has the inner headers, too, which the parser does not look for. Where the last segment is full, as
 * those of bulk are, what is no payload is headers, whatever the tunnel; where it is not, they are not known, and count once.
 */
static __always_inline __u32 wire_computed(struct __sk_buff *skb, struct pw_packet *pkt,
					   bool tunnels)
{
	__u32 len = skb->len, size = skb->gso_size, segments = skb->gso_segs, headers;

	if (pw_likely(!size))
		return len;
	/* By way of memory: the verifier would walk all that follows for every kind of packet. */
	pkt->headers = (__u16)parse_header_bytes(skb, pkt);
	pw_forget();
	headers = pkt->headers;
	if (!segments && len > headers)
		segments = (len - headers + size - 1) / size;
	if (tunnels)
		headers += pw_more(pw_more(len, (__u64)segments * size), headers);
	return segments > 1 ? len + (segments - 1) * headers : len;
}
