/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What takes the exact clock: the total meter is put right (backlog.h), the share of light packets is measured (light.h), and how
 * long the packet will wait is counted (wait.h).
 *
 * That clock is dear: one packet in 32 pays for it and counts for all of them. Packets that take long at the cap all pay: few
 * of those fit through. So does the first heavy packet at every timer interrupt while nothing waits. Between interrupts the
 * meters do not notice idle time, and start what comes next too early by as much; a packet that has the exact time puts the
 * total meter right. A light packet does not pay for that: where a pod has few packets, nearly each one would. So the level may
 * be too low by the time since the last interrupt, until one of the packets that pay comes by.
 */
#pragma once

#include "backlog.h"
#include "base.h"
#include "classify.h"
#include "clock.h"
#include "light.h"
#include "meter.h"
#include "wait.h"

#define PW_EXACT_DICE_BITS 5
/* 1/64 ns: 0.5 ms at the cap, 1500 bytes at 23 Mbit/s. */
#define PW_EXACT_LONG (1ULL << 25)
/* Consecutive multiples of it, as an unsigned fraction, are spread evenly (Weyl). */
#define PW_EXACT_SPREAD 0x9e3779b97f4a7c15ULL

/* For a packet that goes into a band, when the total meter has been asked. */
static __always_inline void exact_note(const struct __sk_buff *skb, struct pw_work *work)
{
	const struct pw_config *cfg = work->cfg;
	struct pw_state *state = work->state;
	__u64 coarse = meter_time(work->now_ns), before = coarse + work->level;
	__u64 cost = work->cost, clock = PW_READ64(&state->wait_clock);
	__u64 dice = before * PW_EXACT_SPREAD, packets, now_ns, now, wait, frame;
	bool heavy;

	pw_forget();
	heavy = work->pkt->class == PW_CLASS_HEAVY;
	if (!heavy)
		PW_WRITE64(&state->wait_clock, coarse + meter_level(clock, coarse) + cost);
	/* All ones if one of many counts for all of them. */
	packets = pw_less(cost, PW_EXACT_LONG) & (pw_less(0, work->level) | -(__u64)!heavy);
	if (pw_likely(dice >> (64 - PW_EXACT_DICE_BITS) & packets))
		return;
	packets = 1 + (((1U << PW_EXACT_DICE_BITS) - 1) & packets);
	now_ns = clock_exact_ns();
	now = meter_time(now_ns);
	backlog_idle(state, now, cost);
	wait = meter_level(before, now);
	if (heavy) {
		frame = backlog_frame(cfg, cost);
		PW_WRITE64(&state->wait_frame, frame);
		wait += backlog_follow(skb, work, wait, frame);
		wait = (pw_more(wait + cost, cfg->total_burst) >> 16) *
		       light_factor(cfg, state, now_ns);
	} else {
		wait = wait_light(state, clock, now, cost, pw_more(wait + cost, cfg->total_burst));
	}
	wait_count(state, heavy, wait >> PW_METER_SHIFT, packets);
}
