//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Copyright Authors of podweir */

/* The programs. A node loads each once, for all its pods. */

#include "base.h"
#include "band.h"
#include "ceiling.h"
#include "police.h"
#include "verdict.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int pw_class(struct __sk_buff *skb)
{
	return band_classify(skb);
}

SEC("tc")
int pw_band(struct __sk_buff *skb)
{
	return band_packet(skb);
}

SEC("tc")
int pw_police(struct __sk_buff *skb)
{
	return police_packet(skb);
}

/* HTB and prio take an skb->priority with their handle in its upper half for a class, before they ask
 * a filter. A process in the pod can set it, and would choose its own band. */
SEC("tc")
int pw_guard(struct __sk_buff *skb)
{
	if (TC_H_MAJ(skb->priority))
		skb->priority = 0;
	return PW_NEXT;
}

/* On the ingress hook behind a queue: at the host side, where what leaves the pod arrives, and for the ceiling of its group also
 * at the pod side. */
SEC("tc")
int pw_ceiling(struct __sk_buff *skb)
{
	return ceiling_packet(skb);
}

/* Sends what enters the pod through the ifb, where the queue is. */
SEC("tc")
int pw_redirect(struct __sk_buff *skb)
{
	struct pw_slot *slot = maps_slot(maps_slot_number(skb));
	const struct pw_config *cfg;

	if (!slot)
		return PW_NEXT;
	cfg = maps_config(slot);
	if (cfg && cfg->redirect_ifindex && bpf_redirect(cfg->redirect_ifindex, 0) == PW_REDIRECT)
		return PW_REDIRECT;
	return verdict_shared(&slot->state, PW_FAILOPEN_CONFIG, skb->len);
}

/* Never called and never loaded: it puts the enums into the type information, from which bpf2go makes
 * the Go constants. */
__attribute__((used, noinline)) static int pw_abi_types(enum pw_policy a, enum pw_direction b,
							enum pw_subnets_mode c,
							enum pw_disposition d, enum pw_flow_kind e)
{
	return (int)a + (int)b + (int)c + (int)d + (int)e;
}
