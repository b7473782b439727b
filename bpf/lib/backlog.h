/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the queue really holds, and what the total meter makes of that.
 *
 * The meter takes for granted that TBF sends at the cap whenever something waits. It does not while the CPU that its
 * timer is on is busy or, on a virtual machine, away: what its bucket cannot save is lost, the queue is longer than the
 * meter says, and stays so for as long as something waits. It would grow until it is full.
 * So the meter follows what the kernel counts. While something waits the bucket holds less than the next packet takes:
 *
 *   burst + queue - next packet <= level <= burst + queue
 *
 * The step is an eighth of what is missing, since for a moment the bucket may hold more, if nobody has asked it yet.
 */
#pragma once

#include "base.h"
#include "maps.h"
#include "meter.h"
#include "total.h"
#include "work.h"

#define PW_BACKLOG_STEP_SHIFT 3
#define PW_BACKLOG_UNIT_SHIFT 6
/* Beyond all offsets that there are; the verifier wants to know. */
#define PW_BACKLOG_OFFSETS 0x3fffU

#define PW_BACKLOG_FULL_FRAME 1514U

#ifdef PW_TEST_CLOCK
volatile __u32 pw_test_backlog;
#endif

/* In bytes, of the root qdisc of the packet's device; 0 where the kernel does not tell. A read that fails gives 0, and
 * what is read at or near address 0 fails. On an egress hook the queue may change meanwhile. */
static __always_inline __u32 backlog_bytes(const struct __sk_buff *skb)
{
#ifdef PW_TEST_CLOCK
	(void)skb;
	return pw_test_backlog;
#else
	__u32 zero = 0, bytes = 0;
	const char *at = (const char *)skb;
	__u64 dev = 0, qdisc = 0;
	const struct pw_layout *layout = bpf_map_lookup_elem(&pw_layout, &zero);

	if (!layout || !layout->qdisc_backlog)
		return 0;
	bpf_probe_read_kernel(&dev, sizeof(dev), at + (layout->skb_dev & PW_BACKLOG_OFFSETS));
	bpf_probe_read_kernel(&qdisc, sizeof(qdisc), (const char *)dev + layout->dev_qdisc);
	bpf_probe_read_kernel(&bytes, sizeof(bytes), (const char *)qdisc + layout->qdisc_backlog);
	return bytes;
#endif
}

/* What the queue takes of the packet at once: TBF cuts one that costs more than its burst into segments. */
static __always_inline __u64 backlog_frame(const struct pw_config *cfg, __u64 cost)
{
	__u64 full = meter_small_cost(&cfg->total_rate, PW_BACKLOG_FULL_FRAME);

	return cost + ((full - cost) & pw_less(cfg->total_burst, cost));
}

/* By how much the level has to change, for a heavy packet of which the queue takes so much at once. What the queue holds
 * is counted in 64 bytes, of which no queue has more than PW_MAX_BYTES. */
static __always_inline __u64 backlog_step(const struct pw_config *cfg, __u64 bytes, __u64 level,
					  __u64 frame)
{
	__u64 units = pw_min(bytes >> PW_BACKLOG_UNIT_SHIFT, PW_MAX_BYTES);
	__u64 most = cfg->total_burst +
		     (meter_small_cost(&cfg->total_rate, units) << PW_BACKLOG_UNIT_SHIFT);
	__u64 least = pw_min(pw_more(most, frame), total_heavy_limit(cfg));
	__u64 step = pw_more(least, level) >> PW_BACKLOG_STEP_SHIFT;

	step -= pw_more(level, most) >> PW_BACKLOG_STEP_SHIFT;
	return step & pw_less(0, bytes);
}

/* Makes the total meter follow; returns by how much. */
static __always_inline __u64 backlog_follow(const struct __sk_buff *skb, const struct pw_work *work,
					    __u64 level, __u64 frame)
{
	__u64 step;

	work->pkt->backlog = backlog_bytes(skb);
	pw_forget();
	step = backlog_step(work->cfg, work->pkt->backlog, level, frame);
	__sync_fetch_and_add(&work->state->total_tat, step);
	return step;
}

/* Puts the meter right where nothing waits any more. */
static __always_inline void backlog_idle(struct pw_state *state, __u64 now, __u64 cost)
{
	__u64 seen = PW_READ64(&state->total_tat);

	if ((__s64)(now + cost - seen) > 0)
		meter_swap(&state->total_tat, seen, now + cost);
}
