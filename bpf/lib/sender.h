/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the socket of a TCP sender on this node says. Packets from elsewhere, and of other protocols, have none. */
#pragma once

#include "base.h"

#ifdef PW_TEST_CLOCK
volatile __u8 pw_test_sender_idle;
#endif

/* Whether the sender has nothing under way but the packet at hand. If it is told that this one is lost, no answer will come
 * that makes it try again: it does so when a timer expires, after 200 ms or more (tcp_check_probe_timer of the kernel).
 * Linux counts a packet as under way only after it has gone. A socket that only receives is idle, too: its answers are small,
 * and take nothing from others (measured: docs/explanation/fair-bands.md). */
static __always_inline bool sender_is_idle(struct __sk_buff *skb)
{
#ifdef PW_TEST_CLOCK
	(void)skb;
	return pw_test_sender_idle;
#else
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tcp = 0;

	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (sk)
		tcp = bpf_tcp_sock(sk);
	return tcp && !tcp->packets_out;
#endif
}
