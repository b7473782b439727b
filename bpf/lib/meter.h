/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The meter: GCRA in its virtual scheduling form (ITU-T I.371), one theoretical arrival time.
 *
 * Times are in 1/64 ns and wrap: differences are read as signed, right as long as they stay below
 * 2^63, 4.5 years. The level is how far the TAT is ahead of now: what the meter still has to work
 * off. It never exceeds the limit of the last admitted packet plus that packet.
 */
#pragma once

#include "base.h"
#include "clock.h"

/* mult * bytes stays below 2^64 (struct pw_rate). A BIG TCP packet has 512 KiB; only one cut into
 * segments of a few bytes has more on the wire, up to hundreds of MB, and is charged in units of 8 KiB. */
#define PW_MAX_BYTES ((1U << 20) - 1)
#define PW_UNIT_SHIFT 13
/* No packet has more. At 1 kbit/s, the lowest cap, that takes 2^61 units of time, and levels stay below 2^63. */
#define PW_MOST_UNITS (1U << (32 - PW_UNIT_SHIFT))

static __always_inline __u64 meter_time(__u64 now_ns)
{
	return now_ns << PW_METER_SHIFT;
}

/* Of up to PW_MAX_BYTES. Rounded up, so that no flood of small packets gains by rounding. */
static __always_inline __u64 meter_small_cost(const struct pw_rate *rate, __u64 bytes)
{
	__u32 shift = rate->shift & 63;

	return (bytes * rate->mult + ((1ULL << shift) - 1)) >> shift;
}

/* As what a packet of so many bytes is charged. */
static __always_inline struct pw_size meter_size(__u32 bytes)
{
	struct pw_size size = { bytes, 0 };

	if (pw_unlikely(bytes > PW_MAX_BYTES)) {
		size.units = ((bytes - 1) >> PW_UNIT_SHIFT) + 1;
		size.shift = PW_UNIT_SHIFT;
	}
	return size;
}

static __always_inline __u64 meter_cost(const struct pw_rate *rate, struct pw_size size)
{
	return meter_small_cost(rate, size.units) << (size.shift & 63);
}

static __always_inline __u64 meter_level(__u64 tat, __u64 now)
{
	__s64 level = (__s64)(tat - now);

	return level > 0 ? (__u64)level : 0;
}

/* A meter of another rate begins anew: what it counted at a slower one would hold packets up for as long as that took. */
static __always_inline void meter_begin(__u64 *tat, __u64 *whose, const struct pw_rate *rate)
{
	__u64 is = rate->mult ^ (__u64)rate->shift << 48;

	if (pw_likely(PW_READ64(whose) == is))
		return;
	PW_WRITE64(tat, meter_time(clock_exact_ns()));
	PW_WRITE64(whose, is);
}

static __always_inline bool meter_swap(__u64 *tat, __u64 seen, __u64 next)
{
	return __sync_val_compare_and_swap(tat, seen, next) == seen;
}

/* What one packet asks of a meter. Levels and cost in 1/64 ns. */
struct pw_ask {
	__u64 *now_ns; /* replaced by the exact time where that is needed */
	__u64 cost;
	__u64 limit; /* admitted at or below this level */
	__u64 full; /* the highest limit that anybody has */
};

/* Admits and charges the packet, or does neither; *level is what it found. The first look is with the
 * time that is there; a refusal is made with the exact time only.
 *
 * Wait-free: the charge is one atomic step that every other CPU's charge adds up with, so contention
 * lets no packet through free. Two CPUs that look at the same time may both be admitted; then the
 * level exceeds the limit by a packet for each CPU, and both are charged.
 * A level beyond what any packet leaves behind stems from a clock 4.5 years ago, or from a slower rate
 * whose debt nobody scaled: it is brought back to full.
 */
static __always_inline bool meter_take(__u64 *tat, const struct pw_rate *rate,
				       const struct pw_ask *ask, __u64 *level)
{
	__u64 now = meter_time(*ask->now_ns), seen = PW_READ64(tat);

	*level = meter_level(seen, now);
	if (pw_unlikely(*level > ask->limit)) {
		*ask->now_ns = clock_exact_ns();
		now = meter_time(*ask->now_ns);
		seen = PW_READ64(tat);
		*level = meter_level(seen, now);
		if (*level > ask->limit) {
			if (pw_unlikely(*level > ask->full + (meter_small_cost(rate, PW_MOST_UNITS)
							      << PW_UNIT_SHIFT)))
				meter_swap(tat, seen, now + ask->full);
			return false;
		}
	}
	/* The clock has gone by: whoever comes first sets the TAT, and the others add to that. */
	if (!*level && meter_swap(tat, seen, now + ask->cost))
		return true;
	*level = meter_level(__sync_fetch_and_add(tat, ask->cost), now);
	return true;
}
