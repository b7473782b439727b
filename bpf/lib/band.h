/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Bands: say which queue a packet waits in, and leave the cap to the shaper above the queues. */
#pragma once

#include "base.h"
#include "classify.h"
#include "total.h"
#include "verdict.h"
#include "work.h"

/* The classifier of our own qdisc. Without a configuration: the first band. */
static __always_inline int band_classify(struct __sk_buff *skb, bool with_subnets)
{
	struct pw_work work;

	if (pw_unlikely(!work_begin(skb, &work, true))) {
		skb->tc_classid = PW_FALLBACK_CLASS;
		counters_add(PW_FAILOPEN_CONFIG, work.bytes);
		return PW_OWN_CLASS;
	}
	switch (classify_packet(&work, with_subnets)) {
	case PW_CLASS_LIGHT:
		skb->priority = work.cfg->light_priority;
		skb->tc_classid = work.cfg->light_class;
		counters_add(PW_LIGHT, work.bytes);
		break;
	case PW_CLASS_HEAVY:
		skb->priority = work.cfg->heavy_priority;
		skb->tc_classid = work.cfg->heavy_class;
		counters_add(PW_PACED, work.bytes);
		break;
	case PW_CLASS_EXEMPT:
		skb->priority = work.cfg->exempt_priority;
		skb->tc_classid = work.cfg->exempt_class;
		counters_add(PW_EXEMPT, work.bytes);
		break;
	}
	return PW_OWN_CLASS;
}

/* On the egress hook of a device whose qdisc chooses the band by skb->priority. That qdisc bounds
 * packets, not bytes; the depth meter bounds the second band by the time it takes to send. */
static __always_inline int band_prioritise(struct __sk_buff *skb, bool with_subnets)
{
	struct pw_work work;
	const struct pw_config *cfg;
	__u64 level;

	if (pw_unlikely(!work_begin(skb, &work, true)))
		return verdict_next(PW_FAILOPEN_CONFIG, work.bytes);
	cfg = work.cfg;
	switch (classify_packet(&work, with_subnets)) {
	case PW_CLASS_LIGHT:
		skb->priority = cfg->light_priority;
		/* In elephants light flows bypass the shaper and delay nobody. */
		if (cfg->depth_meter && cfg->policy != PW_POLICY_ELEPHANTS)
			total_take(&work, total_full(cfg), &level);
		return verdict_next(PW_LIGHT, work.bytes);
	case PW_CLASS_HEAVY:
		if (cfg->depth_meter &&
		    !total_take(&work, cfg->total_burst + cfg->total_horizon, &level))
			return verdict_drop(PW_DROP_HORIZON, work.bytes);
		skb->priority = cfg->heavy_priority;
		return verdict_next(PW_PACED, work.bytes);
	default:
		skb->priority = cfg->exempt_priority;
		return verdict_next(PW_EXEMPT, work.bytes);
	}
}
