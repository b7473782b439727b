/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Departure times: skb->tstamp says when fq shall send the packet. */
#pragma once

#include "base.h"
#include "classify.h"
#include "total.h"
#include "verdict.h"
#include "work.h"

/* False if the stamp is not what it should be, as on an ingress hook, where the kernel hides it.
 * Whatever the packet carries is overwritten: SO_TXTIME lets any process stamp its packets, and many
 * of them with one stamp would leave together. */
static __always_inline bool departure_stamp(struct __sk_buff *skb, __u64 depart_ns)
{
	/* The helper takes IP only (bpf_skb_set_tstamp in net/core/filter.c); fq reads the same field
	 * whatever its kind. */
	if (bpf_skb_set_tstamp(skb, depart_ns, BPF_SKB_TSTAMP_DELIVERY_MONO))
		skb->tstamp = depart_ns;
	return skb->tstamp == depart_ns;
}

/* The first moment at which the meter, worked off at its rate, is down to the burst. */
static __always_inline __u64 departure_ns(const struct pw_work *work)
{
	__u64 burst = work->cfg->total_burst;

	if (work->level <= burst)
		return work->now_ns;
	return work->now_ns +
	       ((work->level - burst + (1U << PW_METER_SHIFT) - 1) >> PW_METER_SHIFT);
}

static __always_inline __u32 departure_set(struct __sk_buff *skb, struct pw_work *work)
{
	enum pw_class class = classify_packet(work);
	__u64 depart_ns;

	if (class == PW_CLASS_EXEMPT)
		return PW_EXEMPT;
	if (total_excess(skb, work, class) == PW_EXCESS_DROP)
		return total_drop_early(work);
	if (!total_take(work, class))
		return PW_DROP_HORIZON;
	depart_ns = class == PW_CLASS_HEAVY ? departure_ns(work) : work->now_ns;
	if (!departure_stamp(skb, depart_ns))
		return PW_FAILOPEN_STAMP;
	if (class == PW_CLASS_LIGHT)
		return PW_LIGHT;
	if (pw_unlikely(work->pkt->excess == PW_EXCESS_MARK))
		return ecn_set_ce(skb, work->pkt) ? PW_MARKED : PW_DROP_EARLY;
	return depart_ns > work->now_ns ? PW_PACED : PW_CONFORMING;
}

static __always_inline int departure_packet(struct __sk_buff *skb)
{
	__u32 disposition = PW_FAILOPEN_CONFIG;
	struct pw_work work;

	if (pw_likely(work_begin(skb, &work, true)))
		disposition = departure_set(skb, &work);
	return verdict_shared(work.state, disposition, work.bytes);
}
