/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which class a packet is of. */
#pragma once

#include "base.h"
#include "clock.h"
#include "exempt.h"
#include "hash.h"
#include "heavy.h"
#include "hold.h"
#include "meter.h"
#include "parse.h"
#include "sketch.h"

enum pw_class {
	PW_CLASS_LIGHT,
	PW_CLASS_HEAVY,
	PW_CLASS_EXEMPT,
};

/* One packet on its way through a program. */
struct pw_work {
	const struct pw_config *cfg;
	struct pw_state *state;
	struct pw_counters *counters;
	struct pw_packet *pkt;
	__u64 now_ns; /* as of the last timer interrupt, or exact */
	__u64 level; /* of the total meter when the packet came */
	__u32 bytes; /* on the wire */
};

/* The level of the light-only meter up to which a flow with this estimate may use it. The fuller the
 * meter, the smaller a flow has to be: the biggest of the light flows become heavy first, and with
 * only small ones the whole tolerance is theirs. */
static __always_inline __u64 classify_light_limit(__u64 tolerance, __u32 est)
{
	if (est >= PW_HEAVY_EST / 2)
		return tolerance / 2;
	if (est >= PW_HEAVY_EST / 8)
		return tolerance - tolerance / 4;
	if (est >= PW_HEAVY_EST / 32)
		return tolerance - tolerance / 8;
	return tolerance;
}

static __always_inline bool classify_take_light(struct pw_work *work, __u32 est)
{
	const struct pw_config *cfg = work->cfg;
	struct pw_ask ask = {
		.now_ns = &work->now_ns,
		.cost = meter_cost(&cfg->light_rate, work->bytes),
		.limit = classify_light_limit(cfg->light_tolerance, est),
		.full = cfg->light_tolerance,
	};
	__u64 level;

	return meter_take(&work->state->light_tat, &cfg->light_rate, &ask, &level);
}

/* A held flow stays heavy, and is held anew as long as it is not clearly light: at half the threshold.
 * A small flow that was moved once for want of room would otherwise never come back while its packets
 * follow each other faster than the hold, as those of a call do. */
static __always_inline bool classify_is_heavy(struct pw_work *work, __u64 id, __u32 tick)
{
	const struct pw_config *cfg = work->cfg;
	__u32 est =
		sketch_update(work->state, id, tick, meter_cost(&cfg->sketch_rate, work->bytes));
	__u64 held = hold_is_set(work->state, id, tick, cfg->hold_ticks);

	work->pkt->anew = (__u8) ~(held & sketch_less(est, PW_HEAVY_EST / 2));
	if (~sketch_less(est, PW_HEAVY_EST) | held)
		return true;
	return cfg->policy == PW_POLICY_STRICT && !classify_take_light(work, est);
}

static __always_inline enum pw_class classify_decide(struct pw_work *work, bool with_subnets)
{
	const struct pw_config *cfg = work->cfg;
	__u32 tick = (__u32)(work->now_ns >> PW_TICK_SHIFT);
	__u64 id;

	if (with_subnets && exempt_matches(work->pkt, cfg))
		return PW_CLASS_EXEMPT;
	/* Without ARP and neighbour discovery nothing else flows; up to the tolerance they are
	 * charged, so that they leave no debt behind. */
	if (pw_unlikely(work->pkt->flow.kind == PW_FLOW_CONTROL)) {
		if (cfg->policy == PW_POLICY_STRICT)
			classify_take_light(work, 0);
		return PW_CLASS_LIGHT;
	}
	if (cfg->policy == PW_POLICY_FLAT)
		return PW_CLASS_HEAVY;
	id = hash_flow(&work->pkt->flow, work->pkt->family == 6, cfg);
	if (!classify_is_heavy(work, id, tick))
		return PW_CLASS_LIGHT;
	pw_forget();
	if (work->pkt->anew)
		hold_set(work->state, id, tick, cfg->hold_ticks);
	heavy_record(work->state, id, &work->pkt->flow, work->bytes, work->now_ns);
	return PW_CLASS_HEAVY;
}

/* Forgets how the class came about: what follows is verified once for each program. */
static __always_inline enum pw_class classify_packet(struct pw_work *work, bool with_subnets)
{
	work->pkt->class = (__u8)classify_decide(work, with_subnets);
	pw_forget();
	return (enum pw_class)work->pkt->class;
}
