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
	int verdict = band_classify(skb, false);

	/* Or the compiler computes the address of tc_classid once, which the verifier refuses. */
	asm volatile("" : "+r"(skb));
	skb->cb[0] = skb->tc_classid;
	return verdict;
}
