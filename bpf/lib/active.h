/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How many heavy flows there are, about: each sets one of 64 bits by its hash, and from how many are set follows how
 * many flows set them (linear counting: Whang, Vander-Zanden and Taylor, ACM TODS 15(2), 1990).
 */
#pragma once

#include "base.h"

/* A period is 2^31 ns, and the bits of the one before count, too: at low rates a flow sends a packet in a second. */
#define PW_ACTIVE_PERIOD_SHIFT 31
#define PW_ACTIVE_BITS 64ULL

/* Two CPUs that begin a period at once begin it once, and may lose a bit. Another CPU's clock may be ahead. */
static __always_inline void active_note(struct pw_state *state, __u64 id, __u64 now_ns)
{
	__u32 period = (__u32)(now_ns >> PW_ACTIVE_PERIOD_SHIFT);
	__s32 passed = (__s32)(period - (__u32)PW_READ64(&state->active_period));
	__u64 now = PW_READ64(&state->active_now);

	if (pw_unlikely(passed > 0)) {
		PW_WRITE64(&state->active_before, now & -(__u64)(passed == 1));
		PW_WRITE64(&state->active_period, period);
		now = 0;
	}
	PW_WRITE64(&state->active_now, now | 1ULL << (id >> 58));
}

/* What a flow would have if it and all heavy ones had the same, an estimate. With b of 64 bits set there are no more
 * than 64 b / (64 - b) flows, on average. */
static __always_inline __u64 active_equal(const struct pw_state *state)
{
	__u64 bits = PW_READ64(&state->active_now) | PW_READ64(&state->active_before);
	__u64 set = (__u64)__builtin_popcountll(bits), clear = PW_ACTIVE_BITS - set;

	return PW_EST_ONE * clear / (PW_ACTIVE_BITS * set + clear);
}
