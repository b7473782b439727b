/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How long packets wait in the two bands, as far as the classifier can know when a packet comes.
 *
 * TBF sends at the cap, and the first band goes first. With its burst taken off, the level of the total meter is how
 * long TBF takes to send everything that is queued, the packet included:
 *
 *   heavy: that time, longer by what light packets take meanwhile: divided by 1 - their recent share of the cap, which
 *          is 0 under elephants, where they do not use the cap
 *   light: the time for what is in the first band, the packet included, less the credit that TBF saves for the heavy
 *          packet that is next; never more than that of the whole queue
 *
 * A statistic: nothing is decided by it.
 */
#pragma once

#include "base.h"
#include "meter.h"

/* Without branches: the verifier would walk each of 16 ways. */
static __always_inline __u64 wait_bucket(__u64 ns)
{
	__u64 units = pw_min(ns >> PW_WAIT_UNIT_SHIFT, PW_WAIT_UNITS - 1), shift;

	shift = 8 & ~pw_less(units, 1U << 11);
	shift += 4 & ~pw_less(units >> shift, 1U << 7);
	shift += 2 & ~pw_less(units >> shift, 1U << 5);
	shift += 1 & ~pw_less(units >> shift, 1U << 4);
	return PW_WAIT_STEPS * shift + (units >> shift);
}

static __always_inline void wait_count(struct pw_state *state, __u64 band, __u64 ns, __u64 packets)
{
	__u64 place = band * PW_WAIT_BUCKETS + wait_bucket(ns);

	pw_mask(place, PW_WAIT_BANDS * PW_WAIT_BUCKETS - 1);
	__sync_fetch_and_add(&state->waits[0][0] + place, packets);
	pw_mask(band, PW_WAIT_BANDS - 1);
	__sync_fetch_and_add(&state->waited_ns[0] + band, packets * ns);
}

/* In 1/64 ns, of a packet that comes now and costs so much, where the queue takes so long. Since the first band was
 * empty TBF has saved for whole heavy packets, sent them, and saves for the next. */
static __always_inline __u64 wait_light(struct pw_state *state, __u64 clock, __u64 now, __u64 cost,
					__u64 queue)
{
	__u64 saved = meter_level(now, clock) % (PW_READ64(&state->wait_frame) | 1);
	__u64 level = meter_level(clock, now) + cost;

	PW_WRITE64(&state->wait_clock, now - saved + level);
	return pw_min(pw_more(level, saved), queue);
}
