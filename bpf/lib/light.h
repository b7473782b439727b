/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How much of the cap light packets have. */
#pragma once

#include "base.h"
#include "meter.h"

/* Of wait_factor, where light packets had an eighth of the cap (trials: docs/contributing/fair-bands.md). */
#define PW_MUCH_LIGHT (PW_WAIT_ONE * 8 / 7)
/* An older one, of 1.07 s, says nothing. Heavy packets measure it every 0.27 s, and where there are none nothing
 * waits for light ones. */
#define PW_MUCH_LIGHT_NS (1ULL << 30)

/* The share is measured over 0.27 s or longer; longer than 18 minutes counts as that. */
#define PW_LIGHT_LEAST_NS (1ULL << 28)
#define PW_LIGHT_MOST_NS (1ULL << 40)

/* How much longer the heavy packets wait because light ones go first. Two CPUs that measure at once measure the
 * same; the clock of one may be behind what the other wrote. */
static __always_inline __u64 light_factor(const struct pw_config *cfg, struct pw_state *state,
					  __u64 now_ns)
{
	__u64 took = now_ns - PW_READ64(&state->wait_since),
	      factor = PW_READ64(&state->wait_factor);
	__u64 bytes, used;

	if (pw_likely((__s64)took < (__s64)PW_LIGHT_LEAST_NS))
		return factor;
	took = pw_min(took, PW_LIGHT_MOST_NS);
	bytes = PW_READ64(&state->counts[PW_LIGHT].bytes);
	used = (bytes - PW_READ64(&state->wait_bytes)) >> 10;
	used = meter_small_cost(&cfg->total_rate, pw_min(used, PW_MAX_BYTES)) >> PW_METER_SHIFT
											 << 10;
	used = pw_min(used, took - took / 16) & -(__u64)(cfg->policy == PW_POLICY_STRICT);
	factor = took * PW_WAIT_ONE / (took - used);
	PW_WRITE64(&state->wait_since, now_ns);
	PW_WRITE64(&state->wait_bytes, bytes);
	PW_WRITE64(&state->wait_factor, factor);
	return factor;
}

/* All ones if light packets have had much of the cap just now. */
static __always_inline __u64 light_is_much(const struct pw_state *state, __u64 now_ns)
{
	/* Less than nothing where the clock is behind. */
	__u64 age = now_ns - PW_READ64(&state->wait_since);

	return pw_less(PW_MUCH_LIGHT, PW_READ64(&state->wait_factor)) &
	       pw_less(age + PW_MUCH_LIGHT_NS, 2 * PW_MUCH_LIGHT_NS);
}
