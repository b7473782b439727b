/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Policing: pass, mark or drop now, where no queue can be had.
 *
 * Above the burst a sender that says it understands marks gets one; the others lose packets with a
 * probability that rises from 0 to 1 over the horizon (as RED does over its range: Floyd and
 * Jacobson, 1993). A mark is a request and any process can ask for marks on its UDP packets, so past
 * the horizon everybody is dropped. What is light has the room beyond that, as in a queue: senders that ignore
 * their marks keep the meter at the horizon.
 *
 * A limit that is only observed has the same arithmetic, and every packet passes as it is: none is dropped, and
 * none is marked.
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

/* The level up to which a heavy packet is admitted. For one that cannot be marked it is drawn between
 * burst and burst + horizon, which makes the chance of a drop linear in the level.
 * total_horizon < 2^48 (1.2 hours) keeps the product below 2^64. */
static __always_inline __u64 police_level(const struct pw_work *work)
{
	return meter_level(PW_READ64(&work->state->total_tat), meter_time(work->now_ns));
}

static __always_inline __u64 police_limit(struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	__u64 chance, level = police_level(work);

	/* A level just above the burst may be the coarse clock's doing. */
	if (level > cfg->total_burst && level - cfg->total_burst < meter_time(PW_COARSE_LAG_NS)) {
		work->now_ns = clock_exact_ns();
		level = police_level(work);
	}
	if (pw_likely(level <= cfg->total_burst) || ecn_is_capable(work->pkt))
		return total_heavy_limit(cfg);
	chance = clock_random() >> (32 - PW_CHANCE_BITS);
	return cfg->total_burst + ((cfg->total_horizon * chance) >> PW_CHANCE_BITS);
}

/* What a packet is that the meter does not admit. */
static __always_inline __u32 police_refused(const struct pw_work *work)
{
	if (work->cfg->observe)
		return PW_WOULD_DROP;
	return work->level > total_heavy_limit(work->cfg) ? PW_DROP_POLICED : PW_DROP_EARLY;
}

static __always_inline __u32 police_class(struct __sk_buff *skb, struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	enum pw_class class = classify_packet(work);
	__u64 limit = total_full(cfg);

	if (class == PW_CLASS_EXEMPT)
		return PW_EXEMPT;
	if (class == PW_CLASS_LIGHT && cfg->policy == PW_POLICY_ELEPHANTS)
		return PW_LIGHT;
	if (class == PW_CLASS_HEAVY)
		limit = police_limit(work);
	if (!total_take_below(work, limit))
		return police_refused(work);
	if (class == PW_CLASS_LIGHT)
		return PW_LIGHT;
	if (work->level <= cfg->total_burst)
		return PW_CONFORMING;
	if (cfg->observe)
		return PW_WOULD_WAIT;
	if (!ecn_is_capable(work->pkt))
		return PW_CONFORMING;
	return ecn_set_ce(skb, work->pkt) ? PW_MARKED : PW_DROP_POLICED;
}

static __always_inline int police_packet(struct __sk_buff *skb)
{
	__u32 disposition = PW_FAILOPEN_CONFIG;
	struct pw_work work;

	if (pw_likely(work_begin(skb, &work, false)))
		disposition = police_class(skb, &work);
	return verdict_shared(work.state, disposition, work.bytes);
}
