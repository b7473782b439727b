/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Holds keep a flow heavy while packets of it may still wait in the second band: going back to the
 * first band earlier, it would overtake itself. classify_is_heavy makes one exception, for a flow
 * that has become clearly light. A Bloom filter of end times: a flow that shares all its cells with
 * heavy flows waits with them, which costs it delay, never order.
 */
#pragma once

#include "base.h"
#include "hash.h"
#include "sketch.h"

static __always_inline __u32 *hold_cell(struct pw_state *state, __u64 id, __u32 row)
{
	return &state->holds[row][PW_HOLD_BITS(id, row) & (PW_HOLD_COLS - 1)];
}

/* All ones if the flow is held. A cell holds while it is in (tick, tick + hold_ticks], with room for a CPU whose clock is ahead. */
static __always_inline __u64 hold_is_set(struct pw_state *state, __u64 id, __u32 tick,
					 __u32 hold_ticks)
{
	__u64 bound = (__u64)hold_ticks + PW_TICK_SKEW, held = -1ULL;

#pragma clang loop unroll(full)
	for (__u32 row = 0; row < PW_HOLD_ROWS; row++) {
		__u32 left = PW_READ32(hold_cell(state, id, row)) - tick - 1;

		held &= sketch_less(left, bound);
	}
	return held;
}

static __always_inline void hold_set(struct pw_state *state, __u64 id, __u32 tick, __u32 hold_ticks)
{
#pragma clang loop unroll(full)
	for (__u32 row = 0; row < PW_HOLD_ROWS; row++) {
		__u32 *cell = hold_cell(state, id, row);

		if (PW_READ32(cell) != tick + hold_ticks)
			PW_WRITE32(cell, tick + hold_ticks);
	}
}
