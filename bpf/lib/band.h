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
	__u32 disposition, priority, classid;
	const struct pw_config *cfg;
	struct pw_work work;

	if (pw_unlikely(!work_begin(skb, &work, true))) {
		skb->tc_classid = PW_FALLBACK_CLASS;
		verdict_count(work.counters, PW_FAILOPEN_CONFIG, work.bytes);
		return PW_OWN_CLASS;
	}
	cfg = work.cfg;
	switch (classify_packet(&work, with_subnets)) {
	case PW_CLASS_LIGHT:
		disposition = PW_LIGHT;
		priority = cfg->light_priority;
		classid = cfg->light_class;
		break;
	case PW_CLASS_HEAVY:
		disposition = PW_PACED;
		priority = cfg->heavy_priority;
		classid = cfg->heavy_class;
		break;
	default:
		disposition = PW_EXEMPT;
		priority = cfg->exempt_priority;
		classid = cfg->exempt_class;
		break;
	}
	skb->priority = priority;
	skb->tc_classid = classid;
	verdict_count(work.counters, disposition, work.bytes);
	return PW_OWN_CLASS;
}

/* What becomes of the packet, and skb->priority set accordingly. The qdisc of the device chooses the
 * band by it and bounds packets, not bytes; the depth meter bounds the second band by the time that
 * it takes to send. */
static __always_inline __u32 band_prioritise(struct __sk_buff *skb, struct pw_work *work,
					     bool with_subnets)
{
	const struct pw_config *cfg = work->cfg;
	enum pw_class class = classify_packet(work, with_subnets);

	__u32 disposition = PW_LIGHT, priority = cfg->light_priority;

	if (class == PW_CLASS_HEAVY) {
		disposition = PW_PACED;
		priority = cfg->heavy_priority;
	} else if (class == PW_CLASS_EXEMPT) {
		disposition = PW_EXEMPT;
		priority = cfg->exempt_priority;
	}
	if (cfg->depth_meter && class != PW_CLASS_EXEMPT && !total_take(work, class) &&
	    class == PW_CLASS_HEAVY)
		disposition = PW_DROP_HORIZON;
	skb->priority = priority;
	return disposition;
}

static __always_inline int band_packet(struct __sk_buff *skb, bool with_subnets)
{
	__u32 disposition = PW_FAILOPEN_CONFIG;
	struct pw_work work;

	if (pw_likely(work_begin(skb, &work, true)))
		disposition = band_prioritise(skb, &work, with_subnets);
	return verdict_shared(work.counters, disposition, work.bytes);
}
