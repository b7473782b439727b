/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The count-min sketch: how much each flow sent recently, as an estimate.
 *
 * A cell halves every 2^half_life_shift ticks and is brought up to date when it is touched.
 * Conservative update (Estan and Varghese, SIGCOMM 2002): a packet raises only the cells below the
 * flow's new estimate, to that estimate. Two CPUs that write one cell at once lose one of the two
 * packets from it, never more: a cell is one 64-bit store.
 */
#pragma once

#include "base.h"
#include "hash.h"
#include "meter.h"

#define PW_EST_MAX 0xffffffffU
/* Clocks of two CPUs, or a CPU that was stolen between reading the clock and using it, differ by
 * less than this many ticks (4.3 s); an older tick is older. */
#define PW_TICK_SKEW 4096U
/* 2^-x on [0, 1) as 1 - a x + b x^2 - c x^3 with the value and the slope of 2^-x at both ends: a = ln 2,
 * b = 5/2 a - 3/2, c = 3/2 a - 1, times 2^20. Within 0.07 %, so that many steps make one. */
#define PW_DECAY_SHIFT 20
#define PW_DECAY_A 726817ULL
#define PW_DECAY_B 244180ULL
#define PW_DECAY_C 41650ULL

/* est as of the tick of the cell, seen so many ticks later; shift belongs to the half-life. */
static __always_inline __u64 sketch_decay(__u32 est, __u32 since, __u32 shift)
{
	__u64 dt, halvings, rest, lost;

	/* The next packet of a flow often comes within the tick. */
	if (pw_likely(!since))
		return est;
	dt = since & pw_less(since, (1ULL << 32) - PW_TICK_SKEW);
	halvings = pw_min(dt >> shift, 32);
	rest = dt & ((1U << shift) - 1);
	lost = PW_DECAY_B - (PW_DECAY_C * rest >> shift);
	lost = PW_DECAY_A - (lost * rest >> shift);
	lost = lost * rest >> shift;
	return ((__u64)est >> halvings) * ((1U << PW_DECAY_SHIFT) - lost) >> PW_DECAY_SHIFT;
}

/* Charges cost to the flow in so many columns from first on, or does not, and returns its new estimate. */
static __always_inline __u32 sketch_rows(struct pw_state *state, __u32 first, __u32 cols,
					 __u32 shift, __u64 id, __u32 tick, __u64 cost, bool charge)
{
	__u64 est[PW_SKETCH_ROWS], least = PW_EST_MAX;
	void *cell[PW_SKETCH_ROWS];

#pragma clang loop unroll(full)
	for (int row = 0; row < PW_SKETCH_ROWS; row++) {
		__u64 word;

		cell[row] = &state->cells[row][first] + (PW_ROW_BITS(id, row) & (cols - 1));
		word = PW_READ64(cell[row]);
		est[row] = sketch_decay((__u32)word, tick - (__u32)(word >> 32), shift);
		least = pw_min(est[row], least);
	}
	least = pw_min(least + cost, PW_EST_MAX);
#pragma clang loop unroll(full)
	for (int row = 0; row < PW_SKETCH_ROWS; row++) {
		if (est[row] < (least & -(__u64)charge))
			PW_WRITE64(cell[row], (__u64)tick << 32 | least);
	}
	return (__u32)least;
}

static __always_inline __u32 sketch_update(const struct pw_config *cfg, struct pw_state *state,
					   __u64 id, __u32 tick, __u64 cost, bool charge)
{
	/* Under elephants only the lower half of the columns. The hash is cut, because to the verifier the number of columns has
	 * to be a constant. */
	/* Only the lower half of the columns: the hash is cut, because to the verifier the number of columns has to be a
	 * constant. */
	if (cfg->policy == PW_POLICY_ELEPHANTS)
		id &= ~PW_ROWS_UPPER;
	pw_forget();
	return sketch_rows(state, 0, PW_SKETCH_COLS, cfg->half_life_shift & 31, id, tick, cost,
			   charge);
}

/* The same for the heavy flows of elephants: the threshold is of what they sent in a second or two, and their share
 * of what they send now. */
static __always_inline __u32 sketch_recent(const struct pw_config *cfg, struct pw_state *state,
					   __u64 id, __u32 tick, __u64 cost)
{
	return sketch_rows(state, PW_RECENT_FIRST, PW_RECENT_COLS, cfg->fair_half_life_shift & 31,
			   id, tick, cost, true);
}

/* Charges cost to what new flows amount to, and returns that. */
static __always_inline __u32 sketch_newcomers(const struct pw_config *cfg, struct pw_state *state,
					      __u32 tick, __u64 cost)
{
	__u64 word = PW_READ64((void *)&state->newcomers);
	__u64 est =
		sketch_decay((__u32)word, tick - (__u32)(word >> 32), cfg->half_life_shift & 31);

	est = pw_min(est + cost, PW_EST_MAX);
	PW_WRITE64((void *)&state->newcomers, (__u64)tick << 32 | est);
	return (__u32)est;
}
