/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the socket of a TCP sender on this node says. Packets from elsewhere, and of other protocols, have none. */
#pragma once

#include "base.h"

/* Segments, as in struct bpf_tcp_sock. */
struct pw_sender {
	__u32 packets_out; /* sent, and not acknowledged */
	__u32 sacked_out; /* of those: the receiver has them */
	__u32 lost_out; /* of those: taken for lost */
	__u32 retrans_out; /* sent again */
};

static __always_inline bool sender_read(struct __sk_buff *skb, struct pw_sender *sender)
{
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tcp = 0;

	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (sk)
		tcp = bpf_tcp_sock(sk);
	if (!tcp)
		return false;
	sender->packets_out = tcp->packets_out;
	sender->sacked_out = tcp->sacked_out;
	sender->lost_out = tcp->lost_out;
	sender->retrans_out = tcp->retrans_out;
	return true;
}

/* What is under way, as the kernel counts it (tcp_packets_in_flight): after a timeout all that was sent is taken for lost, and
 * nothing is. */
static __always_inline __u32 sender_in_flight(const struct pw_sender *sender)
{
	return sender->packets_out - sender->sacked_out - sender->lost_out + sender->retrans_out;
}

#ifdef PW_TEST_CLOCK
volatile struct pw_sender pw_test_sender;
volatile __u8 pw_test_has_sender;
#endif

/* Whether TCP of this node sends the packet and has nothing else under way. If it is told that this one is lost, no answer will come
 * that makes it try again: it does so when a timer expires, after 200 ms or more (tcp_check_probe_timer of the kernel), and
 * after half a second if it sends the packet again (tcp_retransmit_timer).
 * Linux counts a packet as under way only after it has gone, the first SYN excepted. A socket that only receives is
 * idle, too: its answers are small, and take nothing from others. */
static __always_inline bool sender_is_idle(struct __sk_buff *skb)
{
	struct pw_sender sender;

#ifdef PW_TEST_CLOCK
	(void)skb;
	sender = pw_test_sender;
	if (!pw_test_has_sender)
		return false;
#else
	if (!sender_read(skb, &sender))
		return false;
#endif
	return !sender_in_flight(&sender);
}
