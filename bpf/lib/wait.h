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
 * That takes the exact clock, which is dear: one packet in 32 pays for it and counts for all of them. Packets
 * that take long at the cap all pay: few of those fit through. So does the first heavy packet at every timer interrupt
 * while nothing waits. Between interrupts the meters do not notice idle time, and start what comes next too early by
 * as much; a packet that has the exact time puts the total meter right. A light packet does not pay for that: where a
 * pod has few packets, nearly each one would. So the level may be too low by the time since the last interrupt, until
 * one of the packets that pay comes by.
 */
#pragma once

#include "backlog.h"
#include "base.h"
#include "classify.h"
#include "clock.h"
#include "meter.h"

#define PW_WAIT_DICE_BITS 5
/* 1/64 ns: 0.5 ms at the cap, 1500 bytes at 23 Mbit/s. */
#define PW_WAIT_LONG (1ULL << 25)
/* Consecutive multiples of it, as an unsigned fraction, are spread evenly (Weyl). */
#define PW_WAIT_SPREAD 0x9e3779b97f4a7c15ULL
#define PW_WAIT_FULL_FRAME 1514U
/* The share of light packets is measured over 0.27 s or longer; longer than 18 minutes counts as that. */
#define PW_WAIT_LEAST_NS (1ULL << 28)
#define PW_WAIT_MOST_NS (1ULL << 40)

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

	asm volatile("%0 &= %1" : "+r"(place) : "i"(PW_WAIT_BANDS * PW_WAIT_BUCKETS - 1));
	__sync_fetch_and_add(&state->waits[0][0] + place, packets);
	asm volatile("%0 &= %1" : "+r"(band) : "i"(PW_WAIT_BANDS - 1));
	__sync_fetch_and_add(&state->waited_ns[0] + band, packets * ns);
}

/* How much longer the heavy packets wait because light ones go first. Two CPUs that measure at once measure the
 * same; the clock of one may be behind what the other wrote. */
static __always_inline __u64 wait_factor(const struct pw_config *cfg, struct pw_state *state,
					 __u64 now_ns)
{
	__u64 took = now_ns - PW_READ64(&state->wait_since),
	      factor = PW_READ64(&state->wait_factor);
	__u64 bytes, used;

	if (pw_likely((__s64)took < (__s64)PW_WAIT_LEAST_NS))
		return factor;
	took = pw_min(took, PW_WAIT_MOST_NS);
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

/* What the queue takes of the packet at once: TBF cuts one that costs more than its burst into segments. */
static __always_inline __u64 wait_frame(const struct pw_config *cfg, __u64 cost)
{
	__u64 full = meter_small_cost(&cfg->total_rate, PW_WAIT_FULL_FRAME);

	return cost + ((full - cost) & pw_less(cfg->total_burst, cost));
}

/* For a packet that goes into a band, when the total meter has been asked. */
static __always_inline void wait_note(const struct __sk_buff *skb, struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	struct pw_state *state = work->state;
	__u64 coarse = meter_time(work->now_ns), before = coarse + work->level;
	__u64 cost = work->cost, clock = PW_READ64(&state->wait_clock);
	__u64 dice = before * PW_WAIT_SPREAD, packets, now_ns, now, wait, seen, frame;
	bool heavy;

	pw_forget();
	heavy = work->pkt->class == PW_CLASS_HEAVY;
	if (!heavy)
		PW_WRITE64(&state->wait_clock, coarse + meter_level(clock, coarse) + cost);
	/* All ones if one of many counts for all of them. */
	packets = pw_less(cost, PW_WAIT_LONG) & (pw_less(0, work->level) | -(__u64)!heavy);
	if (pw_likely(dice >> (64 - PW_WAIT_DICE_BITS) & packets))
		return;
	packets = 1 + (((1U << PW_WAIT_DICE_BITS) - 1) & packets);
	now_ns = clock_exact_ns();
	now = meter_time(now_ns);
	seen = PW_READ64(&state->total_tat);
	if ((__s64)(now + cost - seen) > 0)
		meter_swap(&state->total_tat, seen, now + cost);
	wait = meter_level(before, now);
	if (heavy) {
		frame = wait_frame(cfg, cost);
		PW_WRITE64(&state->wait_frame, frame);
		wait += backlog_follow(skb, work, wait, frame);
		wait = (pw_more(wait + cost, cfg->total_burst) >> 16) *
		       wait_factor(cfg, state, now_ns);
	} else {
		wait = wait_light(state, clock, now, cost, pw_more(wait + cost, cfg->total_burst));
	}
	wait_count(state, heavy, wait >> PW_METER_SHIFT, packets);
}
