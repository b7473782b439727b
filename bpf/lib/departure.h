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
static __always_inline __u64 departure_ns(const struct pw_work *work, __u64 level)
{
	__u64 burst = work->cfg->total_burst;

	if (level <= burst)
		return work->now_ns;
	return work->now_ns + ((level - burst + (1U << PW_METER_SHIFT) - 1) >> PW_METER_SHIFT);
}

static __always_inline int departure_light(struct __sk_buff *skb, struct pw_work *work)
{
	__u64 level;

	if (work->cfg->policy != PW_POLICY_ELEPHANTS &&
	    !total_take(work, total_full(work->cfg), &level))
		return verdict_drop(PW_DROP_HORIZON, work->bytes);
	if (!departure_stamp(skb, work->now_ns))
		return verdict_next(PW_FAILOPEN_STAMP, work->bytes);
	return verdict_next(PW_LIGHT, work->bytes);
}

static __always_inline int departure_heavy(struct __sk_buff *skb, struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	__u64 level, depart_ns;

	if (!total_take(work, cfg->total_burst + cfg->total_horizon, &level))
		return verdict_drop(PW_DROP_HORIZON, work->bytes);
	depart_ns = departure_ns(work, level);
	if (!departure_stamp(skb, depart_ns))
		return verdict_next(PW_FAILOPEN_STAMP, work->bytes);
	return verdict_next(depart_ns > work->now_ns ? PW_PACED : PW_CONFORMING, work->bytes);
}

static __always_inline int departure_set(struct __sk_buff *skb, bool with_subnets)
{
	struct pw_work work;

	if (pw_unlikely(!work_begin(skb, &work, true)))
		return verdict_next(PW_FAILOPEN_CONFIG, work.bytes);
	switch (classify_packet(&work, with_subnets)) {
	case PW_CLASS_LIGHT:
		return departure_light(skb, &work);
	case PW_CLASS_HEAVY:
		return departure_heavy(skb, &work);
	default:
		return verdict_next(PW_EXEMPT, work.bytes);
	}
}
