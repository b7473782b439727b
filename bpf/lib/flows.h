/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The table of recent flows: which are held, and which are established.
 *
 * Held: a flow stays heavy while packets of it may still wait in the second band; going back to the
 * first band earlier, it would overtake itself.
 * Established: it was there before, in three different times. One that rotates its ports makes a flow
 * of each packet and never is. Where the light band is full, that is what tells them apart, and
 * classify_take_light keeps room for those that are established.
 *
 * A flow has two places. A place is kept for two seconds after the flow's last packet, or after its
 * hold; others take it earlier as long as the flow is not established. So a flood of new flows changes
 * nothing of the established ones, and little of one that comes up beside it. What finds no place is
 * not held and not established.
 *
 * A word is a mark of the flow, its age, and a time: the end of the hold, or when it was last light.
 * Times are in units of 2^PW_FLOW_UNIT_SHIFT ticks and wrap within 36 minutes. Two flows that share a
 * place share a mark with a probability of 2^-12. Two CPUs that write one word at once lose one of the
 * two packets from it: it is a 32-bit store.
 */
#pragma once

#include "base.h"
#include "hash.h"
#include "sketch.h"

#define PW_FLOW_UNIT_SHIFT 3 /* 8.4 ms */
#define PW_FLOW_TIME_BITS 18
#define PW_FLOW_TIME_MASK ((1U << PW_FLOW_TIME_BITS) - 1)
#define PW_FLOW_AGE_SHIFT PW_FLOW_TIME_BITS
#define PW_FLOW_MARK_SHIFT (PW_FLOW_AGE_SHIFT + 2)
/* The age of an established flow. */
#define PW_FLOW_OLD 3U
/* How long a flow that sends nothing is remembered: 2.1 s, some keepalives and resolver timeouts. */
#define PW_FLOW_KEPT 256U
/* The longest hold, 9 minutes: half of what the times can tell from the past, and a quarter. */
#define PW_FLOW_MAX_HOLD (1U << 16)

static __always_inline __u32 flows_unit(__u32 tick)
{
	return tick >> PW_FLOW_UNIT_SHIFT;
}

/* A hold in units: rounded up, and one for the unit that has begun. */
static __always_inline __u32 flows_hold(__u32 hold_ticks)
{
	__u32 units = hold_ticks >> PW_FLOW_UNIT_SHIFT;

	return (__u32)pw_min(units, PW_FLOW_MAX_HOLD) + 2;
}

/* How far a word's time is ahead. */
static __always_inline __s32 flows_ahead(__u32 word, __u32 unit)
{
	return (__s32)((word - unit) << (32 - PW_FLOW_TIME_BITS)) >> (32 - PW_FLOW_TIME_BITS);
}

static __always_inline __u32 flows_age(__u32 word)
{
	return word >> PW_FLOW_AGE_SHIFT & PW_FLOW_OLD;
}

static __always_inline __u32 flows_mark(__u64 id)
{
	return (__u32)id >> PW_FLOW_MARK_SHIFT;
}

/* All ones if the word is of a flow that is remembered; with room for a CPU whose clock is ahead. */
static __always_inline __u64 flows_live(__u32 word, __u32 unit, __u32 hold)
{
	__u32 since = (__u32)flows_ahead(word, unit) + PW_FLOW_KEPT - 1;

	return pw_less(since, PW_FLOW_KEPT + hold + (PW_TICK_SKEW >> PW_FLOW_UNIT_SHIFT));
}

/* Who is displaced first: nobody, then the youngest, then who is established, then who is that and
 * held. */
static __always_inline __u32 flows_rank(__u32 word, __u32 unit, __u64 live)
{
	__u32 age = flows_age(word);
	__u64 both =
		pw_less(PW_FLOW_OLD - 1, age) & pw_less(0, (__u64)(__s64)flows_ahead(word, unit));

	return (__u32)(live & (1 + age + (both & 1)));
}

/* The age of a flow that was found, with this packet. The second packet of a flow counts at once, so that
 * new ones displace those of one packet first; then it takes later units, so that a burst does not make it
 * established. While it is held they count from when the hold began, as its packets do not move the time of
 * the word. */
static __always_inline __u32 flows_grown(__u32 word, __u32 unit, __u32 hold)
{
	__u32 age = flows_age(word);
	__u64 ahead = (__u64)(__s64)flows_ahead(word, unit), held = pw_less(0, ahead);
	__u64 passed = (hold & held) - ahead, least = pw_min(age, 1 + (age & held));

	return age + (__u32)(pw_less(least, passed + 1) & pw_less(age, PW_FLOW_OLD) & 1);
}

/* Most packets are of established flows that were seen in this very unit: their word says so, and stays as
 * it is. */
static __always_inline bool flows_find_same(struct pw_state *state, __u64 id, __u32 unit,
					    __u32 hold, struct pw_known *known)
{
	__u32 place = PW_FLOW_BITS(id, 0) & (PW_FLOW_COLS - 1);
	__u32 at = PW_READ32(&state->flows[0][0] + place) ^
		   (flows_mark(id) << PW_FLOW_MARK_SHIFT | PW_FLOW_OLD << PW_FLOW_AGE_SHIFT);
	bool held = at == ((unit + hold) & PW_FLOW_TIME_MASK);

	if (!held && at != (unit & PW_FLOW_TIME_MASK))
		return false;
	known->place = (__u16)place;
	known->found = 1;
	known->held = held;
	known->age = PW_FLOW_OLD;
	known->at = at;
	return true;
}

/* Looks a flow up that would be held for so long now, where the longest hold is that. Branch-free, like the
 * sketch. */
static __always_inline void flows_find(struct pw_state *state, __u64 id, __u32 unit, __u32 hold,
				       __u32 longest, struct pw_known *known)
{
	__u32 place[PW_FLOW_ROWS], word[PW_FLOW_ROWS], rank[PW_FLOW_ROWS];
	__u64 own[PW_FLOW_ROWS], second;

#pragma clang loop unroll(full)
	for (__u32 row = 0; row < PW_FLOW_ROWS; row++) {
		__u64 live;

		place[row] = row * PW_FLOW_COLS + (PW_FLOW_BITS(id, row) & (PW_FLOW_COLS - 1));
		word[row] = PW_READ32(&state->flows[0][0] + place[row]);
		live = flows_live(word[row], unit, longest);
		own[row] = live & pw_less(word[row] >> PW_FLOW_MARK_SHIFT ^ flows_mark(id), 1);
		rank[row] = flows_rank(word[row], unit, live);
	}
	second = ~own[0] & (own[1] | pw_less(rank[1], rank[0]));
	own[0] |= own[1];
	word[0] ^= (word[0] ^ word[1]) & (__u32)second;
	known->place = (__u16)(place[0] ^ ((place[0] ^ place[1]) & (__u32)second));
	known->found = (__u8)own[0] & 1;
	known->held = known->found & (__u8)pw_less(0, (__u64)(__s64)flows_ahead(word[0], unit));
	known->rank = (__u8)(rank[0] ^ ((rank[0] ^ rank[1]) & (__u32)second));
	known->age = (__u8)(flows_grown(word[0], unit, hold) & (__u32)own[0]);
	known->at = word[0] & PW_FLOW_TIME_MASK;
}

/* Whether the sketch counts a packet of the flow. The first of a new flow it does not: a flood of such flows would
 * fill every cell with what it offers, many times the cap, and none is seen again. A flow that both places are closed
 * to would never be found, and counts. Whoever has been silent for long may count, too. With branches: most packets
 * end at the first one. */
static __always_inline bool flows_counts(struct pw_state *state, __u64 id)
{
	__u64 closed = 1;

#pragma clang loop unroll(full)
	for (__u32 row = 0; row < PW_FLOW_ROWS; row++) {
		__u32 place = row * PW_FLOW_COLS + (PW_FLOW_BITS(id, row) & (PW_FLOW_COLS - 1));
		__u32 word = PW_READ32(&state->flows[0][0] + place);

		if (pw_likely(word >> PW_FLOW_MARK_SHIFT == flows_mark(id)))
			return true;
		closed &= pw_less(PW_FLOW_OLD - 1, flows_age(word));
	}
	return closed;
}

/* Writes that the flow was seen, and until when it is held. A big flow displaces who is established and
 * not held. */
static __always_inline void flows_keep(struct pw_state *state, const struct pw_known *known,
				       __u64 id, __u32 big)
{
	__u32 *place = &state->flows[0][0] + (known->place & (PW_FLOW_ROWS * PW_FLOW_COLS - 1));
	__u32 word = flows_mark(id) << PW_FLOW_MARK_SHIFT | (__u32)known->age << PW_FLOW_AGE_SHIFT |
		     (known->at & PW_FLOW_TIME_MASK);

	if (!known->found && known->rank > PW_FLOW_OLD + big)
		return;
	/* Mostly nothing has changed. */
	if (PW_READ32(place) != word)
		PW_WRITE32(place, word);
}
