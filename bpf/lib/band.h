/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Bands: say which queue a packet waits in, and leave the cap to the shaper above the queues. */
#pragma once

#include "base.h"
#include "classify.h"
#include "exact.h"
#include "total.h"
#include "verdict.h"
#include "work.h"

/* The level up to which the packet is admitted. Large packets of one flow fill the second band beyond what is aimed at. A
 * flow that has no more than its share shall not lose packets for that; under strict it goes first. */
static __always_inline __u64 band_limit(const struct pw_work *work, bool heavy)
{
	const struct pw_packet *pkt = work->pkt;
	__u64 bounded =
		pw_less(pkt->fair, pkt->est) | -(__u64)(work->cfg->policy == PW_POLICY_STRICT);

	return total_full(work->cfg) - (work->cfg->light_tolerance & bounded & -(__u64)heavy);
}

/* What becomes of the packet. The total meter knows how much waits: it bounds the second band, and makes it fair
 * between flows. */
static __always_inline __u32 band_decide(struct __sk_buff *skb, struct pw_work *work)
{
	enum pw_class class = classify_packet(work);
	struct pw_packet *pkt = work->pkt;
	bool heavy = class == PW_CLASS_HEAVY;

	if (class == PW_CLASS_EXEMPT)
		return PW_EXEMPT;
	if (work->cfg->policy == PW_POLICY_FLAT)
		return heavy ? PW_PACED : PW_LIGHT;
	/* Neither delayed nor charged. */
	if (work->cfg->policy == PW_POLICY_ELEPHANTS && !heavy)
		return PW_LIGHT;
	if (total_excess(skb, work, class) == PW_EXCESS_DROP)
		return total_drop_early(work);
	/* A light packet that is beyond its limit is not charged, and goes in. */
	if (!total_take_below(work, band_limit(work, heavy)) && heavy)
		return PW_DROP_HORIZON;
	/* What is light has no excess. */
	if (pw_unlikely(pkt->excess == PW_EXCESS_MARK) && !ecn_set_ce(skb, pkt))
		return PW_DROP_EARLY;
	exact_note(skb, work);
	if (!heavy)
		return PW_LIGHT;
	return pkt->excess == PW_EXCESS_NONE ? PW_PACED : PW_MARKED;
}

static __always_inline __u32 band_priority(const struct pw_config *cfg, __u32 disposition)
{
	if (disposition == PW_LIGHT)
		return cfg->light_priority;
	return disposition == PW_EXEMPT ? cfg->exempt_priority : cfg->heavy_priority;
}

static __always_inline __u32 band_class(const struct pw_config *cfg, __u32 disposition)
{
	if (disposition == PW_LIGHT)
		return cfg->light_class;
	if (verdict_is_drop(disposition))
		return cfg->drop_class;
	return disposition == PW_EXEMPT ? cfg->exempt_class : cfg->heavy_class;
}

/* The classifier of our own qdisc. A packet is lost in a class of its own: what a filter drops counts as sent, and TCP in
 * the pod would not slow down before its peer misses it. */
static __always_inline int band_classify(struct __sk_buff *skb)
{
	__u32 disposition = PW_FAILOPEN_CONFIG;
	struct pw_work work;
	bool begun = work_begin(skb, &work, true);

	/* Only now: it said which slot is the packet's. */
	skb->tc_classid = PW_FALLBACK_CLASS;
	if (pw_likely(begun)) {
		disposition = band_decide(skb, &work);
		skb->priority = band_priority(work.cfg, disposition);
		skb->tc_classid = band_class(work.cfg, disposition);
	}
	verdict_count_own(work.state, disposition, work.bytes);
	/* Or the compiler keeps where that field is, and the verifier reads a context from its beginning alone. */
	asm volatile("" : "+r"(skb));
	return verdict_is_drop(disposition) && !skb->tc_classid ? PW_DROP : PW_OWN_CLASS;
}

/* The qdisc of the device chooses the band by skb->priority. */
static __always_inline int band_packet(struct __sk_buff *skb)
{
	__u32 disposition = PW_FAILOPEN_CONFIG;
	struct pw_work work;

	if (pw_likely(work_begin(skb, &work, true))) {
		disposition = band_decide(skb, &work);
		skb->priority = band_priority(work.cfg, disposition);
	}
	return verdict_shared(work.state, disposition, work.bytes);
}
