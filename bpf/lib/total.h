/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The total meter: what departure times, policing and the depth of the second band have in common. */
#pragma once

#include "base.h"
#include "classify.h"
#include "meter.h"

/* The highest level at which anybody is admitted: what is admitted as light goes first, on top of
 * heavy packets that fill the horizon. */
static __always_inline __u64 total_full(const struct pw_config *cfg)
{
	return cfg->total_burst + cfg->total_horizon + cfg->light_tolerance;
}

static __always_inline bool total_take(struct pw_work *work, __u64 limit, __u64 *level)
{
	const struct pw_config *cfg = work->cfg;
	struct pw_ask ask = {
		.now = meter_time(work->now_ns),
		.cost = meter_cost(&cfg->total_rate, work->bytes),
		.limit = limit,
		.full = total_full(cfg),
	};

	return meter_take(&work->state->total_tat, &cfg->total_rate, &ask, level);
}
