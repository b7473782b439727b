/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The total meter: what all programs have in common that bound what waits. */
#pragma once

#include "active.h"
#include "base.h"
#include "classify.h"
#include "fair.h"
#include "meter.h"
#include "sender.h"

/* Heavy packets are admitted up to this level. */
static __always_inline __u64 total_heavy_limit(const struct pw_config *cfg)
{
	return cfg->total_burst + cfg->total_horizon;
}

/* The highest level at which anybody is admitted: what is light goes first, on top of heavy packets
 * that fill the horizon. */
static __always_inline __u64 total_full(const struct pw_config *cfg)
{
	return total_heavy_limit(cfg) + cfg->light_tolerance;
}

/* Admits and charges up to limit; work->level is what it found. */
static __always_inline bool total_take_below(struct pw_work *work, __u64 limit)
{
	const struct pw_config *cfg = work->cfg;
	struct pw_ask ask = {
		.now_ns = &work->now_ns,
		.cost = work_cost(work, &cfg->total_rate),
		.limit = limit,
		.full = total_full(cfg),
	};

	work->cost = ask.cost;
	return meter_take(&work->state->total_tat, &cfg->total_rate, &ask, &work->level);
}

/* Elephants: the estimate that separates light from heavy is too slow to find who has too much now. As under strict an equal
 * part is fair in any case (classify_big), and a quarter more than that (classify_look): whoever has no more loses nothing
 * while the share is too small. */
static __always_inline void total_recent(struct pw_work *work)
{
	struct pw_packet *pkt = work->pkt;
	__u64 equal = active_equal(work->state);

	equal += equal / 4;
	pkt->est = sketch_recent(work->cfg, work->state, pkt->id,
				 (__u32)(work->now_ns >> PW_TICK_SHIFT),
				 work_cost(work, &work->cfg->fair_rate));
	if (pkt->est >= pkt->fair)
		fair_want(work->state);
	pkt->fair += (__u32)(pw_more(equal, pkt->fair) & ~pw_less(equal, pkt->est));
	pw_forget();
}

/* A wrong guess costs a turn: a later packet of an idle sender is lost instead. */
static __always_inline void total_keep(struct __sk_buff *skb, const struct pw_work *work,
				       __u64 cost)
{
	__u64 turn = fair_is_turn(work->cfg, work->pkt, cost);

	pw_forget();
	turn &= sender_is_idle(skb);
	work->pkt->excess &= (__u8) ~-turn;
}

/* Heavy flows share what is left to them, unless one band has all of them. */
static __always_inline enum pw_excess total_excess(struct __sk_buff *skb, struct pw_work *work,
						   enum pw_class class)
{
	struct pw_packet *pkt = work->pkt;
	__u32 tick = (__u32)(work->now_ns >> PW_TICK_SHIFT);
	__u64 cost;

	pkt->excess = PW_EXCESS_NONE;
	if (class == PW_CLASS_HEAVY && work->cfg->policy != PW_POLICY_FLAT) {
		if (work->cfg->policy == PW_POLICY_ELEPHANTS)
			total_recent(work);
		cost = work_cost(work, &work->cfg->total_rate);
		pkt->extra = PW_READ64(&work->state->fair_extra);
		pkt->cut = PW_READ64(&work->state->fair_cut);
		pw_forget();
		pkt->wait = fair_wait(work->cfg, pkt->fair, pkt);
		pw_forget();
		pkt->excess = (__u8)fair_draw(work->cfg, pkt);
		pw_forget();
		if (pw_unlikely(pkt->excess == PW_EXCESS_DROP))
			total_keep(skb, work, cost);
		pw_forget();
		fair_balance(work->cfg, pkt, tick, cost);
		pw_forget();
		fair_note(work->cfg, work->state, pkt, tick, cost);
	}
	pw_forget();
	return (enum pw_excess)pkt->excess;
}

/* For a packet that is lost because its flow has more than the fair share. */
static __always_inline __u32 total_drop_early(const struct pw_work *work)
{
	fair_lost(work->cfg, work->state, work->pkt, work_cost(work, &work->cfg->total_rate));
	return PW_DROP_EARLY;
}
