/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Policing: pass, mark or drop now, where no queue can be had.
 *
 * Above the burst a sender that says it understands marks gets one; the others lose packets with a
 * probability that rises from 0 to 1 over the horizon (as RED does over its range: Floyd and
 * Jacobson, 1993). A mark is a request and any process can ask for marks on its UDP packets, so past
 * the horizon everybody is dropped.
 */
#pragma once

#include "base.h"
#include "classify.h"
#include "clock.h"
#include "ecn.h"
#include "total.h"
#include "verdict.h"
#include "work.h"

#define PW_CHANCE_BITS 16

/* The level up to which this packet is admitted. For one that cannot be marked it is drawn between
 * burst and burst + horizon, which makes the chance of a drop linear in the level.
 * total_horizon < 2^48 (52 min) keeps the product below 2^64. */
static __always_inline __u64 police_limit(const struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	__u64 chance, limit = cfg->total_burst + cfg->total_horizon;
	__u64 level = meter_level(PW_READ64(&work->state->total_tat), meter_time(work->now_ns));

	if (pw_likely(level <= cfg->total_burst) || ecn_is_capable(&work->pkt))
		return limit;
	chance = clock_random() >> (32 - PW_CHANCE_BITS);
	return cfg->total_burst + ((cfg->total_horizon * chance) >> PW_CHANCE_BITS);
}

static __always_inline int police_heavy(struct __sk_buff *skb, struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	__u64 level;

	if (!total_take(work, police_limit(work), &level))
		return verdict_drop(level > cfg->total_burst + cfg->total_horizon ? PW_DROP_POLICED
										  : PW_DROP_EARLY,
				    work->bytes);
	if (pw_likely(level <= cfg->total_burst))
		return verdict_next(PW_CONFORMING, work->bytes);
	if (!ecn_is_capable(&work->pkt))
		return verdict_next(PW_CONFORMING, work->bytes);
	if (!ecn_set_ce(skb, &work->pkt))
		return verdict_drop(PW_DROP_POLICED, work->bytes);
	return verdict_next(PW_MARKED, work->bytes);
}

static __always_inline int police_light(struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	__u64 level;

	if (cfg->policy != PW_POLICY_ELEPHANTS &&
	    !total_take(work, cfg->total_burst + cfg->total_horizon, &level))
		return verdict_drop(PW_DROP_POLICED, work->bytes);
	return verdict_next(PW_LIGHT, work->bytes);
}

static __always_inline int police_packet(struct __sk_buff *skb, bool with_subnets)
{
	struct pw_work work;

	if (pw_unlikely(!work_begin(skb, &work, false)))
		return verdict_next(PW_FAILOPEN_CONFIG, work.bytes);
	switch (classify_packet(&work, with_subnets)) {
	case PW_CLASS_LIGHT:
		return police_light(&work);
	case PW_CLASS_HEAVY:
		return police_heavy(skb, &work);
	default:
		return verdict_next(PW_EXEMPT, work.bytes);
	}
}
