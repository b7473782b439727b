/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The count-min sketch: how much each flow sent recently, as an estimate.
 *
 * Estimates halve every 2^half_life_shift ticks. So that time changes nothing in a cell, it holds what it would have had at
 * the beginning of a span of four half-lives, and which span that is (forward decay: Cormode, Shkapenyuk, Srivastava and Xu,
 * ICDE 2009): a float of base 16, whose exponent counts spans. Exponents wrap, after 2.4 hours or more; of the cells
 * that were not touched for so long one in 4,000 seems to have something, and a flow is believed where all of its cells do.
 * Conservative update (Estan and Varghese, SIGCOMM 2002): a packet raises only the cells below the
 * flow's new estimate, to that estimate. Two CPUs that write one cell at once lose one of the two
 * packets from it, never more: a cell is one 32-bit store.
 */
#pragma once

#include "base.h"
#include "hash.h"
#include "meter.h"

#define PW_EST_MAX 0xffffffffU
/* Clocks of two CPUs, or a CPU that was stolen between reading the clock and using it, differ by
 * less than this many ticks (4.3 s); an older tick is older. */
#define PW_TICK_SKEW 4096U
/* 2^-x on [0, 1] as 1 - a x + b x^2 - c x^3, times 2^20. Within 0.03 %. */
#define PW_DECAY_SHIFT 20
#define PW_DECAY_A 726558ULL
#define PW_DECAY_B 245811ULL
#define PW_DECAY_C 43541ULL

/* Of a cell, the exponent is above these bits. The larger the word, the more it has, but for less than 2^-20 of the cap. */
#define PW_CELL_BITS 16
#define PW_CELL_MASK ((1U << PW_CELL_BITS) - 1)
/* What a cell takes in, so that it may be rounded up. */
#define PW_CELL_FULL 0xf000U
/* Values are in 1/256 of an estimate. Nothing is left two spans after that of the exponent. */
#define PW_CELL_POINT 8
#define PW_CELL_MOST (((__u64)PW_CELL_FULL << 28) - 1)
#define PW_CELL_PAST 2U
#define PW_CELL_LIVE (16U << PW_CELL_BITS)
#define PW_SPAN_SHIFT 2

/* 2^-x, times 2^20, where rest is x * 2^shift and x at most 1. */
static __always_inline __u64 sketch_power(__u64 rest, __u32 shift)
{
	__u64 lost = PW_DECAY_B - (PW_DECAY_C * rest >> shift);

	lost = PW_DECAY_A - (lost * rest >> shift);
	return (1U << PW_DECAY_SHIFT) - (lost * rest >> shift);
}

/* The share is as of a tick that never goes back, whatever the clock of this CPU says. Most packets come in the tick of the
 * one before. */
static __always_inline const struct pw_moment *
sketch_moment(struct pw_packet *pkt, const struct pw_state *state, __u32 shift)
{
	struct pw_moment *at = &pkt->moment;
	__u64 tick = PW_READ64(&state->fair) >> 32, of = tick << 8 | 1U << 7 | shift, part, rest;

	if (pw_unlikely(at->of != of)) {
		shift &= 31;
		part = tick >> shift & ((1U << PW_SPAN_SHIFT) - 1);
		rest = tick & ((1ULL << shift) - 1);
		at->of = of;
		at->base =
			(__u32)(((tick >> shift >> PW_SPAN_SHIFT) - PW_CELL_PAST) << PW_CELL_BITS);
		at->up = 2 * sketch_power((1ULL << shift) - rest, shift) << part;
		at->down = sketch_power(rest, shift) >> part;
	}
	pw_forget();
	return at;
}

/* From here on words are without the base of the moment. What is long ago seems to be far ahead. */
static __always_inline __u64 sketch_live(__u64 word)
{
	return word & pw_less(word, PW_CELL_LIVE);
}

/* What a cell has, with so much more. */
static __always_inline __u64 sketch_value(const struct pw_moment *at, __u64 word, __u64 cost)
{
	__u64 value =
		(word & PW_CELL_MASK) << (word >> PW_CELL_BITS << 2 & 63) >> (4 * PW_CELL_PAST);

	return value + (pw_min(cost, PW_EST_MAX) * at->up >> (PW_DECAY_SHIFT - PW_CELL_POINT));
}

static __always_inline __u32 sketch_estimate(const struct pw_moment *at, __u64 value)
{
	value = pw_min(value, PW_CELL_MOST) * at->down >> (PW_DECAY_SHIFT + PW_CELL_POINT);
	return (__u32)pw_min(value, PW_EST_MAX);
}

/* The word for a value that a cell shall have in place of a smaller one. What does not fit makes it round up as often as it is
 * a part of what fits: rounded up or down each time, small packets beside much would count too much or not at all. With each
 * packet that is queued or is light the dice fall anew. Other writes wait for this one, so it shall be there soon. */
static __always_inline __u64 sketch_word(const struct pw_state *state, __u64 value, __u64 before)
{
	__u64 dice = PW_READ64(&state->total_tat) + PW_READ64(&state->counts[PW_LIGHT].packets);
	__u64 shift = pw_more(before >> PW_CELL_BITS, PW_CELL_PAST) << 2 & 63;

	shift += pw_up(value >> shift, PW_CELL_FULL, 2);
	if (pw_unlikely(value >> shift >= PW_CELL_FULL)) {
		value = pw_min(value, PW_CELL_MOST);
		shift = pw_up(value, PW_CELL_FULL << 12, 4);
		shift += pw_up(value >> shift, PW_CELL_FULL << 4, 3);
		shift += pw_up(value >> shift, PW_CELL_FULL, 2);
	}
	value += dice * PW_SPREAD >> 32 & ((1U << shift) - 1);
	return (shift << (PW_CELL_BITS - 2)) + (PW_CELL_PAST << PW_CELL_BITS) + (value >> shift);
}

/* Charges cost to the flow in rows of so many cells, or does not, and returns its new estimate. */
static __always_inline __u32 sketch_rows(const struct pw_state *state, __u32 *cells, __u32 cols,
					 const struct pw_moment *at, __u64 id, __u64 cost,
					 bool charge)
{
	__u64 word[PW_SKETCH_ROWS], all = 0, least, value;
	__u32 *cell[PW_SKETCH_ROWS];

#pragma clang loop unroll(full)
	for (int row = 0; row < PW_SKETCH_ROWS; row++) {
		cell[row] = cells + row * cols + (PW_ROW_BITS(id, row) & (cols - 1));
		word[row] = PW_READ32(cell[row]) - at->base;
		all |= word[row];
	}
	if (pw_unlikely(all >= PW_CELL_LIVE)) {
#pragma clang loop unroll(full)
		for (int row = 0; row < PW_SKETCH_ROWS; row++)
			word[row] = sketch_live(word[row]);
	}
	least = word[0];
#pragma clang loop unroll(full)
	for (int row = 1; row < PW_SKETCH_ROWS; row++)
		least = pw_min(word[row], least);
	value = sketch_value(at, least, cost);
	least = sketch_word(state, value, least) & -(__u64)charge;
	/* Or the compiler asks for each row whether to charge. */
	asm volatile("" : "+r"(least));
#pragma clang loop unroll(full)
	for (int row = 0; row < PW_SKETCH_ROWS; row++) {
		if (word[row] < least)
			PW_WRITE32(cell[row], at->base + (__u32)least);
	}
	return sketch_estimate(at, value);
}

static __always_inline __u32 sketch_update(const struct pw_config *cfg, struct pw_state *state,
					   struct pw_packet *pkt, __u64 cost, bool charge)
{
	return sketch_rows(state, &state->cells[0][0], PW_SKETCH_COLS,
			   sketch_moment(pkt, state, cfg->half_life_shift), pkt->id, cost, charge);
}

/* The same for the heavy flows of elephants: the threshold is of what they sent in a second or two, and their share
 * of what they send now. */
static __always_inline __u32 sketch_recent(const struct pw_config *cfg, struct pw_state *state,
					   struct pw_packet *pkt, __u64 cost)
{
	return sketch_rows(state, &state->recent[0][0], PW_RECENT_COLS,
			   sketch_moment(pkt, state, cfg->fair_half_life_shift), pkt->id, cost,
			   true);
}

/* Charges cost to what new flows amount to, and returns that. */
static __always_inline __u32 sketch_newcomers(struct pw_state *state, const struct pw_moment *at,
					      __u64 cost)
{
	__u64 word = sketch_live(PW_READ32(&state->newcomers) - at->base);
	__u64 value = sketch_value(at, word, cost);

	PW_WRITE32(&state->newcomers, at->base + (__u32)sketch_word(state, value, word));
	return sketch_estimate(at, value);
}
