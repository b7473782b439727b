//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Copyright Authors of podweir */

/* The limit of CiliumIngress, which says what it copies. */

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

const volatile __u64 bytes_per_sec;

/* The bucket: its bytes, and when they were counted. */
static volatile __u64 filled, counted_ns;

SEC("tc")
int rival_police(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns(), second = bytes_per_sec;
	__u64 bucket = filled + (now - counted_ns) * second / 1000000000;
	int verdict = TC_ACT_SHOT;

	if (bucket > second)
		bucket = second;
	if (bucket >= skb->wire_len) {
		bucket -= skb->wire_len;
		verdict = TC_ACT_UNSPEC;
	}
	filled = bucket;
	counted_ns = now;
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
