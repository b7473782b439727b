/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which class a packet is of. */
#pragma once

#include "active.h"
#include "base.h"
#include "clock.h"
#include "exempt.h"
#include "fair.h"
#include "flows.h"
#include "hash.h"
#include "heavy.h"
#include "light.h"
#include "meter.h"
#include "parse.h"
#include "sketch.h"
#include "work.h"

enum pw_class {
	PW_CLASS_LIGHT,
	PW_CLASS_HEAVY,
	PW_CLASS_EXEMPT,
};

/* Up to this many bytes on the wire a packet of a new flow may use what is left to small flows: handshakes,
 * requests, queries and their likes fit, and a flood of them is one of very many packets. */
#define PW_SMALL_BYTES 256U

/* The level of the light-only meter up to which a flow that is taken for so much may use it. The fuller the
 * meter, the smaller a flow has to be: the biggest of the light flows wait first, and with only small ones
 * the whole tolerance is theirs. */
static __always_inline __u64 classify_light_limit(__u64 tolerance, const struct pw_packet *pkt)
{
	__u64 eighth = tolerance / 8;

	tolerance -= eighth & ~pw_less(pkt->claim, pkt->big_est / 32);
	tolerance -= eighth & ~pw_less(pkt->claim, pkt->big_est / 8);
	return tolerance - (2 * eighth & ~pw_less(pkt->claim, pkt->big_est / 2));
}

/* What a light flow is taken for. The estimate of a new one is mostly that of others, so its packets count
 * by their size: those that a connection begins with may use the whole meter, and large ones not. */
static __always_inline __u32 classify_claim(const struct pw_packet *pkt, __u32 bytes)
{
	__u64 is_new = pw_less(pkt->known.age, PW_FLOW_OLD);
	__u64 claim = pkt->est + (is_new & pw_more(pkt->big_est / 32, pkt->est));

	return (__u32)(claim & ~(is_new & pw_less(bytes, PW_SMALL_BYTES + 1)));
}

/* The queue is short while the cap sends it in this part (1/64) of the light-only meter's tolerance: 1.6 ms at the default
 * (trials: docs/contributing/fair-bands.md). */
#define PW_SHORT_PART 64

/* Where next to nothing waits, light flows take nothing from heavy ones, and a packet of theirs that went to the second
 * band would only wait longer than those behind it. */
static __always_inline bool classify_is_short(const struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	__u64 tat = PW_READ64(&work->state->total_tat);

	return meter_level(tat, meter_time(work->now_ns)) <=
	       cfg->total_burst + cfg->light_tolerance / PW_SHORT_PART;
}

/* Asks the light-only meter, which refuses nothing while the queue is short. Where it is full, what established flows
 * need is theirs, up to half of the meter's rate: a flood of new flows, each of them small, would otherwise leave no
 * room to any flow that is larger than a packet. What they get here is charged to the light-only meter as well, so that
 * the others yield. */
static __always_inline bool classify_take_light(struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	struct pw_state *state = work->state;
	__u64 cost = work_cost(work, &cfg->light_rate), level;
	struct pw_ask ask = {
		.now_ns = &work->now_ns,
		.cost = cost,
		.limit = classify_light_limit(cfg->light_tolerance, work->pkt),
		/* The reserve is charged beyond the limit. */
		.full = 2 * cfg->light_tolerance,
	};
	bool reserve = false;

	/* One copy of the meter for both. */
#pragma clang loop unroll(disable)
	while (!meter_take(reserve ? &state->established_tat : &state->light_tat, &cfg->light_rate,
			   &ask, &level)) {
		if (classify_is_short(work))
			return true;
		if (reserve || work->pkt->known.age != PW_FLOW_OLD)
			return false;
		reserve = true;
		ask.cost = 2 * cost;
		ask.limit /= 4;
		ask.full = cfg->light_tolerance / 4;
	}
	if (reserve)
		__sync_fetch_and_add(&state->light_tat, cost);
	return true;
}

/* ARP and neighbour discovery go first, since without them nothing else flows. That holds for packets of up to
 * PW_SMALL_BYTES, at this part of the cap (1/100), and this many of that size at once. Larger packets, and more
 * of them, are flows like others. */
#define PW_CONTROL_PART 100U
#define PW_CONTROL_PACKETS 8U

/* Simpler than meter_take: it does not ask for the exact time, and of two CPUs that charge at once one is refused.
 * Either costs the packet no more than its privilege. With more branches the verifier walked twice as much. */
static __always_inline bool classify_take_control(struct pw_work *work)
{
	const struct pw_rate *rate = &work->cfg->total_rate;
	__u64 limit = PW_CONTROL_PART * meter_small_cost(rate, PW_CONTROL_PACKETS * PW_SMALL_BYTES);
	__u64 *tat = &work->state->control_tat, seen = PW_READ64(tat);
	__u64 now = meter_time(work->now_ns), level = meter_level(seen, now);

	return (pw_less(work->bytes, PW_SMALL_BYTES + 1) & pw_less(level, limit)) &&
	       meter_swap(tat, seen,
			  now + level + PW_CONTROL_PART * meter_small_cost(rate, work->bytes));
}

/* For how long the flow would be held now, in units of the table. One that has its share is held for the longest
 * time from its last such packet on: bulk would go back and forth otherwise, and overtake itself. Any other that
 * finds no room among the light ones waits its turn: as long as what is queued takes to send, and long enough to
 * become established meanwhile. */
static __always_inline __u32 classify_hold(const struct pw_packet *pkt, __u32 longest)
{
	__u64 turn = pkt->level >> (PW_METER_SHIFT + PW_TICK_SHIFT);

	turn = PW_FLOW_OLD + flows_hold((__u32)pw_min(turn, PW_EST_MAX));
	turn |= PW_EST_MAX & -(__u64)pkt->big;
	return (__u32)pw_min(turn, longest);
}

/* A TCP flow that slows down for a loss is below its share for seconds, and comes back. Let go meanwhile it would
 * overtake what it sent, and send that again; BBR would take the speed of the first band for its own, and send that
 * much. So one that is held for its share is held on down to a quarter of it: where the
 * queue is short, the share is what the largest flow has, and some have less than half of that. Others with less than
 * their share are calls as likely as bulk, and most of them send nothing again. */
static __always_inline bool classify_slowed(const struct pw_work *work, __u32 unit)
{
	const struct pw_packet *pkt = work->pkt;

	return work->cfg->policy == PW_POLICY_STRICT && pkt->flow.protocol == IPPROTO_TCP &&
	       pkt->est >= pkt->big_est / 4 &&
	       /* longer than for a turn */
	       flows_ahead(pkt->known.at, unit) > (__s32)pkt->hold;
}

/* From which estimate on a flow is held. The share can be far too small for a while: TCP whose packet is lost on the way
 * out of its pod tries again at once, and BBR with all its speed. What a flow would have if it and all heavy ones had
 * the same is fair in any case. */
static __always_inline __u64 classify_big(const struct pw_work *work)
{
	const struct pw_packet *pkt = work->pkt;
	__u64 fair = pkt->fair;

	if (!pw_less(pkt->est, fair))
		fair += pw_more(active_equal(work->state), fair);
	return fair_big(work->cfg, fair);
}

/* Up to which estimate a flow is light: a quarter more than it is held for, or a call below its share would wait whenever
 * that is a little less. Of a new flow the estimate is only a part of its rate, half after a half-life of the sketch.
 * Where connections end soon each of them would be light until it has had its share, all of them would leave little of
 * the cap to heavy packets, and their own ends would wait there until their senders' timers expire. So where light
 * packets have had much of the cap just now, new flows are light up to half. */
static __always_inline __u64 classify_light_most(const struct pw_work *work)
{
	const struct pw_packet *pkt = work->pkt;
	__u64 most = (__u64)pkt->big_est + pkt->big_est / 4;

	if (pw_unlikely(pkt->known.age != PW_FLOW_OLD))
		most -= most / 2 & light_is_much(work->state, work->now_ns);
	return most + work->cfg->frame_est;
}

/* What the flow is by itself: pkt->light says whether it may be light.
 * A held flow stays heavy, also one that becomes established meanwhile: let go at once it would overtake
 * what it sent before. */
static __always_inline void classify_look(struct pw_work *work, __u64 id, __u32 tick)
{
	const struct pw_config *cfg = work->cfg;
	struct pw_packet *pkt = work->pkt;
	struct pw_known *known = &pkt->known;
	__u32 unit = flows_unit(tick), longest = flows_hold(cfg->hold_ticks);

	/* Elsewhere a light flow gets no place. */
	pkt->counts = cfg->policy != PW_POLICY_STRICT || flows_counts(work->state, id);
	pw_forget();
	pkt->est = sketch_update(cfg, work->state, id, tick, work_cost(work, &cfg->sketch_rate),
				 pkt->counts);
	pw_forget();
	pkt->big_est = (__u32)classify_big(work);
	pw_forget();
	pkt->big = !pw_less(pkt->est, pkt->big_est);
	pkt->hold = classify_hold(pkt, longest);
	pw_forget();
	if (!flows_find_same(work->state, id, unit, pkt->hold, known))
		flows_find(work->state, id, unit, pkt->hold, longest, known);
	pw_forget();
	if (known->held && classify_slowed(work, unit)) {
		pkt->big = 1;
		pkt->hold = longest;
	}
	pkt->light = pw_less(pkt->est, classify_light_most(work)) && !known->held;
	pkt->claim = classify_claim(pkt, work->bytes);
}

static __always_inline void classify_remember(struct pw_work *work, __u64 id, __u32 tick)
{
	struct pw_packet *pkt = work->pkt;
	struct pw_known *known = &pkt->known;

	if (!pkt->light && (pkt->big || !known->held))
		known->at = flows_unit(tick) + pkt->hold;
	pw_forget();
	flows_keep(work->state, known, id, pkt->big);
	pw_forget();
}

/* How much waits, and what is fair. */
static __always_inline void classify_share(struct pw_work *work, __u32 tick)
{
	struct pw_packet *pkt = work->pkt;

	pkt->level = meter_level(PW_READ64(&work->state->total_tat), meter_time(work->now_ns));
	fair_look(work->cfg, work->state, pkt, tick);
}

static __always_inline enum pw_class classify_decide(struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	struct pw_packet *pkt = work->pkt;
	__u32 tick = (__u32)(work->now_ns >> PW_TICK_SHIFT);

	if (pw_unlikely(pkt->light))
		return PW_CLASS_EXEMPT;
	if (pw_unlikely(pkt->control) && classify_take_control(work))
		return PW_CLASS_LIGHT;
	if (cfg->policy == PW_POLICY_FLAT)
		return PW_CLASS_HEAVY;
	pw_forget();
	pkt->id = hash_flow(&pkt->flow, pkt->family == 6, work->slot->hash_keys);
	pw_forget();
	classify_share(work, tick);
	pw_forget();
	classify_look(work, pkt->id, tick);
	pw_forget();
	if (pkt->light && cfg->policy == PW_POLICY_STRICT) {
		pkt->known.at = flows_unit(tick);
		pkt->light = classify_take_light(work);
	}
	pw_forget();
	if (pkt->light && cfg->policy != PW_POLICY_STRICT)
		return PW_CLASS_LIGHT;
	classify_remember(work, pkt->id, tick);
	if (pkt->light)
		return PW_CLASS_LIGHT;
	/* New flows that the sketch does not count are one flow together: by itself none has its share, and none would
	 * lose a packet. */
	if (!pkt->counts)
		pkt->est = sketch_newcomers(cfg, work->state, tick,
					    work_cost(work, &cfg->sketch_rate));
	if (cfg->policy == PW_POLICY_STRICT && pkt->est >= pkt->fair)
		fair_want(work->state);
	active_note(work->state, pkt->id, work->now_ns);
	pw_forget();
	pkt->listed = heavy_record(work->state, pkt->id, &pkt->flow, work->bytes, work->now_ns);
	return PW_CLASS_HEAVY;
}

/* Forgets how the class came about: what follows is verified once for each program. */
static __always_inline enum pw_class classify_packet(struct pw_work *work)
{
	work->pkt->class = (__u8)classify_decide(work);
	pw_forget();
	return (enum pw_class)work->pkt->class;
}
