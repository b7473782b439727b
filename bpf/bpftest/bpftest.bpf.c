//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Copyright Authors of podweir */

/* The programs with a clock and dice that a test sets. */

#define PW_TEST_CLOCK
#include "../podweir.bpf.c"

/* skb->tc_classid does not come back from BPF_PROG_TEST_RUN; skb->cb does. */
SEC("tc")
int pw_class_probe(struct __sk_buff *skb)
{
	int verdict = band_classify(skb);

	/* Or the compiler computes the address of tc_classid once, which the verifier refuses. */
	asm volatile("" : "+r"(skb));
	skb->cb[0] = skb->tc_classid;
	return verdict;
}

/* What real sockets say when a packet of theirs goes out: nothing sent, nothing under way, something. */
volatile __u64 pw_test_senders[3];

SEC("tc")
int pw_sender_probe(struct __sk_buff *skb)
{
	struct pw_sender sender;

	if (!sender_read(skb, &sender))
		return PW_NEXT;
	if (sender_in_flight(&sender))
		__sync_fetch_and_add(&pw_test_senders[2], 1);
	else if (sender.packets_out)
		__sync_fetch_and_add(&pw_test_senders[1], 1);
	else
		__sync_fetch_and_add(&pw_test_senders[0], 1);
	return PW_NEXT;
}
