/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The fair share, and who loses a packet for having more than that.
 * Its numbers were found by trials: docs/contributing/fair-bands.md.
 *
 * The share does not come from a count of flows (active.h says what is fair in any case). It is an estimate that
 * grows while the queue is shorter than what is aimed at and a heavy flow has the share, and shrinks while the queue
 * is longer. So it ends where the flows, each cut down to it, take the cap together. A heavy packet is lost with the
 * chance that brings its flow down to the share (approximate fair dropping: Pan, Breslau, Prabhakar and Shenker,
 * SIGCOMM CCR 33(2), 2003).
 */
#pragma once

#include "base.h"
#include "clock.h"
#include "ecn.h"
#include "meter.h"
#include "sender.h"
#include "sketch.h"

/* From all of the cap, since what is above that only takes longer to come down when it is needed, to 1/256 of it:
 * with more active flows than that each has a packet now and then in any case. */
#define PW_FAIR_MOST ((__u64)PW_EST_ONE)
#define PW_FAIR_LEAST (PW_EST_ONE / 256)
/* An empty queue makes the share grow by 1/128 of itself in a tick, e times in 0.13 s. */
#define PW_FAIR_GAIN_SHIFT 7
#define PW_FAIR_ERROR_SHIFT 10
/* The part of what is aimed at over which the chance of a loss rises. */
#define PW_FAIR_RANGE(wait) ((wait) / 4)
/* It shrinks up to so much faster than it grows, since too long a queue costs others more than too short a one. But as
 * far beyond the aim as below it, both are alike: else large packets, which go far beyond, bring it down to nothing. */
#define PW_FAIR_SHRINK 2
/* At once it shrinks by no more than a quarter of itself. */
#define PW_FAIR_MOST_TICKS 16U
#define PW_FAIR_PAUSE 512U /* ticks */
/* The wait grows by half of the time that lost packets of TCP bulk would have taken to send, and fades by half of 1/150
 * of the time that passes: it comes to rest where such packets are 0.7 % of the cap.
 * Bulk is a flow that has sent more than the cap carries in 67 ms. Where all flows are shorter, as where pages are fetched
 * on connections of their own, a long queue has nobody to help, and beyond 200 ms it makes their timers expire. */
#define PW_FAIR_LOST_SHIFT 1
#define PW_FAIR_FADE ((1ULL << (PW_TICK_SHIFT + PW_METER_SHIFT - PW_FAIR_LOST_SHIFT)) / 150)
#define PW_FAIR_BULK_NS (1ULL << 26)
/* The longer the queue is for bulk, the longer is the round trip of all heavy TCP. A new connection
 * has few packets under way, and after its first loss it would need seconds to have its share again. So where
 * bulk made the queue longer a flow may have twice the share until it has sent what the share carries in 2.1 s. Up to
 * what a part of the cap carries would be too long where flows are many: what was sent is known of the flows in the list
 * of heavy flows, and these would have twice as much as all others. */
#define PW_FAIR_BEGINS_NS (1ULL << 31)
/* Out of a pod the sender's kernel sees a drop: TCP slows down, and nothing is sent again over the network. So
 * there the wait grows only where TCP loses 8 times as much, which is mostly BBR. */
#define PW_FAIR_TOLD_SHIFT 3
/* A sender that is far away sends too little for seconds after a loss, and a short queue runs empty meanwhile. So for
 * 2.1 s after a loss each packet of TCP bulk that finds the queue empty makes the wait longer, by half of the time that it takes
 * to send. */
#define PW_FAIR_CUT_TICKS 2048U
#define PW_FAIR_UNUSED_SHIFT 1
/* In the word of the share: since it was set a heavy flow has had as much. Without that it does not grow: where nobody
 * has it, the queue is short because nobody wants more. */
#define PW_FAIR_WANTED (1ULL << 31)
/* There, too: as of that tick a flood loses packets. */
#define PW_FAIR_FLOODED (1U << 30)
#define PW_FAIR_SHARE ((1U << 29) - 1)

/* As many full frames as one offloaded packet may add to an estimate before its flow seems to ignore marks. At
 * 10 Mbit/s they are a tenth of the cap. */
#define PW_FAIR_FRAMES 4U

/* A flow that had less than this part of the share before the packet at hand does not lose it. At 10 Mbit/s an offloaded packet
 * of 64 kB is ten times what is fair among nine flows, and a TCP sender without a packet under way tries again only after half
 * a second. */
#define PW_FAIR_SILENT_PART 8

/* A flood does not slow down: it is not TCP, and has a quarter more than its share, and some frames, when it loses a packet for that.
 * It fills whatever queue there is, and some TCP has no more than a few packets in it: that of this node (TCP small queues), and BBR,
 * which keeps under way what the network held before. Such TCP has that much for each wait. So while a flood loses packets
 * the wait becomes shorter by the time of each packet of TCP that has less than its share, and longer by that of the others.
 * Cubic from elsewhere is below its share only after losses, and with a short queue it would lose more: for 2.1 s
 * after a loss only a flow that has less than the others' share makes the wait shorter.
 * A flow that slows down is cut at its peaks, and has less than those on average. So beside a flood TCP may have one and a half
 * times the share, which also bounds BBR. So may any other flow that has no more than that, such as QUIC.
 * Many BBR flows from elsewhere have enough and lose much. So losses make the wait longer beside a flood, too, but what they
 * added fades 16 times faster: cubic loses up to a tenth of its packets there, and one BBR flow lost much when it began. */
#define PW_FAIR_SEEN_SHIFT 6 /* ticks in a unit */
#define PW_FAIR_SEEN 4U /* for so many units, which are all odd: 134 to 268 ms */
#define PW_FAIR_SEEN_MASK 0xffffULL
#define PW_FAIR_FLOOD 32 /* where that is in fair_cut; 0: never */
#define PW_FAIR_BRIEF \
	48 /* there: by which part fair_least, fair_spare and fair_extra are shorter, in 1/2^16 */
#define PW_FAIR_BRIEF_FADE 4
#define PW_FAIR_BRIEF_MOST 0xffffULL

enum pw_excess {
	PW_EXCESS_NONE,
	PW_EXCESS_DROP,
	PW_EXCESS_MARK,
};

static __always_inline __u64 fair_unit(__u32 tick)
{
	return (tick >> PW_FAIR_SEEN_SHIFT | 1) & PW_FAIR_SEEN_MASK;
}

/* PW_FAIR_FLOODED if a flood loses packets. */
static __always_inline __u32 fair_see(const struct pw_packet *pkt, __u32 tick)
{
	__u64 at = pkt->cut >> PW_FAIR_FLOOD & PW_FAIR_SEEN_MASK;

	return PW_FAIR_FLOODED & pw_less(0, at) &
	       pw_less((fair_unit(tick) - at) & PW_FAIR_SEEN_MASK, PW_FAIR_SEEN);
}

/* All ones if that is so. */
static __always_inline __u64 fair_is_flooded(const struct pw_packet *pkt)
{
	return pw_less(0, pkt->flood & PW_FAIR_FLOODED);
}

/* How long heavy packets shall wait. So that a flow that is cut down to its share still has some packets under way, the
 * queue is the longer the more flows share it. What losses add to that is kept apart, or a share that is far too small
 * for a moment would leave a long queue behind. */
static __always_inline __u64 fair_wait(const struct pw_config *cfg, __u64 fair,
				       const struct pw_packet *pkt)
{
	__u64 brief = pkt->cut >> PW_FAIR_BRIEF & fair_is_flooded(pkt);
	__u64 each = cfg->fair_each - (cfg->fair_spare >> 16) * brief;
	__u64 least = cfg->fair_least - (cfg->fair_least >> 16) * brief;
	__u64 wait = (each << 16) / (fair >> 8 | 1);

	wait += pw_more(least, wait) + pkt->extra - (pkt->extra >> 16) * brief;
	return pw_min(wait, cfg->fair_most);
}

/* All ones for TCP. */
static __always_inline __u64 fair_is_tcp(const struct pw_packet *pkt)
{
	return -(__u64)(pkt->flow.protocol == IPPROTO_TCP);
}

/* What TCP has sent, in 2^10/64 ns at the cap, 0 if that is not known; for others 0. It is counted in KiB, so that the
 * product fits 64 bits. Without a branch, which would be one more way for the verifier to walk. */
static __always_inline __u64 fair_sent(const struct pw_config *cfg, const struct pw_packet *pkt)
{
	__u64 kib = pw_min(pkt->listed >> 10, PW_MAX_BYTES);

	return meter_small_cost(&cfg->total_rate, kib) & fair_is_tcp(pkt);
}

/* All ones for a packet of TCP bulk. */
static __always_inline __u64 fair_is_bulk(const struct pw_config *cfg, const struct pw_packet *pkt)
{
	return pw_less(meter_time(PW_FAIR_BULK_NS) >> 10, fair_sent(cfg, pkt));
}

/* The share of the packet's flow, an estimate: twice that of others for new TCP beside bulk. */
static __always_inline __u64 fair_of(const struct pw_config *cfg, const struct pw_packet *pkt)
{
	__u64 sent = fair_sent(cfg, pkt);
	__u64 enough = (__u64)pkt->fair * (meter_time(PW_FAIR_BEGINS_NS) >> 10) / PW_EST_ONE;
	__u64 begins = pw_less(0, sent) & pw_less(sent, enough);

	enough = pkt->fair / 2 & fair_is_flooded(pkt) &
		 (fair_is_tcp(pkt) | pw_less(pkt->est, pkt->fair + pkt->fair / 2));
	return pkt->fair + enough + (pkt->fair & begins & pw_less(0, pkt->extra));
}

static __always_inline void fair_longer(const struct pw_config *cfg, struct pw_state *state,
					const struct pw_packet *pkt, __u64 by)
{
	PW_WRITE64(&state->fair_extra, pw_min(pkt->extra + by, cfg->fair_most));
}

/* Notes that a heavy packet is lost, which would have taken so long at the cap. TCP that loses much does not slow down
 * for that: BBR keeps more under way than it needs, and loses what there is no room for as long as it lasts. Other
 * protocols do not make the queue longer: a flood of UDP would. */
static __always_inline void fair_lost(const struct pw_config *cfg, struct pw_state *state,
				      const struct pw_packet *pkt, __u64 cost)
{
	cost &= fair_is_bulk(cfg, pkt);
	cost >>= PW_FAIR_TOLD_SHIFT & -(__u64)(cfg->direction == PW_DIR_EGRESS);
	fair_longer(cfg, state, pkt, cost >> PW_FAIR_LOST_SHIFT);
}

/* The share so many ticks later. How far the queue is from what is aimed at counts as a part of the range of
 * fair_draw, so that the share comes to rest soon. */
static __always_inline __u64 fair_moved(const struct pw_config *cfg, const struct pw_packet *pkt,
					__u64 fair, bool wanted, __u64 ticks)
{
	__u64 wait = fair_wait(cfg, fair, pkt);
	__u64 aim = cfg->total_burst + wait, range = PW_FAIR_RANGE(wait) | 1;
	__u64 below = pw_min(pw_more(aim, pkt->level), range) << PW_FAIR_ERROR_SHIFT;
	__u64 beyond = pw_min(pw_more(pkt->level, aim), PW_FAIR_SHRINK * range)
		       << PW_FAIR_ERROR_SHIFT;
	__u64 part = fair * pw_min(ticks, PW_FAIR_MOST_TICKS);

	below &= -(__u64)wanted;
	fair += part * (below / range) >> (PW_FAIR_GAIN_SHIFT + PW_FAIR_ERROR_SHIFT);
	fair -= part * (beyond / range) >> (PW_FAIR_GAIN_SHIFT + PW_FAIR_ERROR_SHIFT);
	/* After a pause nothing is known, which is also how it begins. */
	fair |= PW_FAIR_MOST & pw_less(PW_FAIR_PAUSE, ticks);
	fair = pw_min(fair, PW_FAIR_MOST);
	return PW_FAIR_LEAST + pw_more(fair, PW_FAIR_LEAST);
}

/* Sets what is fair now. Two CPUs that change it at once change it once. To one whose tick is older than that of
 * the share no time has passed. */
static __always_inline void fair_look(const struct pw_config *cfg, struct pw_state *state,
				      struct pw_packet *pkt, __u32 tick)
{
	__u64 word = PW_READ64(&state->fair), fair = word & PW_FAIR_SHARE;
	__u32 ticks = tick - (__u32)(word >> 32);

	pkt->fair = (__u32)fair;
	pkt->flood = (__u32)word;
	if (pw_likely(ticks + PW_TICK_SKEW <= PW_TICK_SKEW))
		return;
	pkt->extra = PW_READ64(&state->fair_extra);
	pkt->cut = PW_READ64(&state->fair_cut);
	pkt->flood = fair_see(pkt, tick);
	pw_forget();
	fair = fair_moved(cfg, pkt, fair, word & PW_FAIR_WANTED, ticks);
	pkt->fair = (__u32)fair;
	pw_forget();
	pkt->extra = pw_more(pkt->extra,
			     ticks * PW_FAIR_FADE << (PW_FAIR_BRIEF_FADE & fair_is_flooded(pkt)));
	PW_WRITE64(&state->fair_extra, pkt->extra);
	PW_WRITE64(&state->fair, (__u64)tick << 32 | pkt->flood | fair);
}

/* Notes that a heavy flow has the share. */
static __always_inline void fair_want(struct pw_state *state)
{
	__u64 word = PW_READ64(&state->fair);

	if (!(word & PW_FAIR_WANTED))
		PW_WRITE64(&state->fair, word | PW_FAIR_WANTED);
}

/* Moves the wait beside a flood for a packet of TCP, which costs so much. Whether TCP of this node lost any says nothing:
 * it slows down by what its own kernel drops, and not for long. */
static __always_inline void fair_balance(const struct pw_config *cfg, struct pw_packet *pkt,
					 __u32 tick, __u64 cost)
{
	__u64 brief = pkt->cut >> PW_FAIR_BRIEF, enough, less;

	if (pw_likely(!(fair_is_flooded(pkt) & fair_is_tcp(pkt))))
		return;
	enough = ~pw_less(pkt->est, fair_of(cfg, pkt));
	less = ~enough &
	       (pw_less(pkt->est, pkt->fair) | pw_less(PW_FAIR_CUT_TICKS, tick - (__u32)pkt->cut) |
		pw_less(cfg->direction, PW_DIR_INGRESS));
	cost = (pw_min(cost, cfg->fair_least) << 16) / (cfg->fair_least | 1);
	brief = pw_min(pw_more(brief, cost & enough) + (cost & less), PW_FAIR_BRIEF_MOST);
	pkt->cut = (pkt->cut & ((1ULL << PW_FAIR_BRIEF) - 1)) | brief << PW_FAIR_BRIEF;
}

/* Notes when a heavy packet of TCP bulk was last lost for its share, or marked, and a flood lost one. Of two CPUs
 * that note something at once one may be forgotten, until the next packet. The wait becomes
 * longer if a packet of TCP bulk finds the queue empty soon after such a loss. */
static __always_inline void fair_note(const struct pw_config *cfg, struct pw_state *state,
				      struct pw_packet *pkt, __u32 tick, __u64 cost)
{
	__u64 unit = tick | fair_unit(tick) << PW_FAIR_FLOOD, mask;
	__u64 most = (__u64)pkt->fair + pkt->fair / 4 + PW_FAIR_FRAMES * cfg->fair_frame_est;
	__u64 excess = -(__u64)(pkt->excess != PW_EXCESS_NONE), bulk = fair_is_bulk(cfg, pkt);

	mask = excess & bulk & PW_EST_MAX;
	mask |= excess & pw_less(most, pkt->est) & ~fair_is_tcp(pkt) &
		PW_FAIR_SEEN_MASK << PW_FAIR_FLOOD;
	PW_WRITE64(&state->fair_cut, (pkt->cut & ~mask) | (unit & mask));
	/* The bucket has saved most of the burst. */
	if (pw_likely(excess | pw_less(cfg->total_burst / 4, pkt->level)))
		return;
	if (tick - (__u32)pkt->cut < PW_FAIR_CUT_TICKS && bulk)
		fair_longer(cfg, state, pkt, cost >> PW_FAIR_UNUSED_SHIFT);
}

/* All ones if the packet, which costs so much, is one that an idle TCP sender (sender.h) keeps: a flow with one packet under way at
 * a time has no more than its share if that takes no more than the share is of the wait. Larger ones are kept while they
 * leave half of the room, else flows that are many fill the queue with them, and a call beside them loses what it sends. The
 * shift keeps the product below 2^64. */
static __always_inline __u64 fair_is_turn(const struct pw_config *cfg, const struct pw_packet *pkt,
					  __u64 cost)
{
	__u64 part = (pkt->wait >> 12) * fair_of(cfg, pkt) / (PW_EST_ONE >> 12);
	__u64 room = pw_more(cfg->total_burst + cfg->fair_most, pkt->level);

	return pw_less(cost, part) | pw_less(cost, room / 2);
}

/* From which estimate on a flow is held. */
static __always_inline __u64 fair_big(const struct pw_config *cfg, __u64 fair)
{
	__u64 least = cfg->light_least;

	return least + pw_more(pw_min(fair, cfg->light_most), least);
}

/* What becomes of a heavy packet, if there is room for it. Whoever understands marks gets one instead of a drop, unless
 * it has ignored so many that it is at twice the share, and that is not just one offloaded packet. */
static __always_inline enum pw_excess fair_draw(const struct pw_config *cfg,
						const struct pw_packet *pkt)
{
	/* At the aim the chance is all that the share asks for: if the queue had to be longer for that, the share would
	 * shrink to nothing under a flood. */
	__u64 first = cfg->total_burst + pkt->wait - PW_FAIR_RANGE(pkt->wait);
	__u64 fair = fair_of(cfg, pkt), level = pkt->level;
	__u64 before = pw_more(pkt->est, meter_cost(&cfg->fair_rate, pkt->size));
	__u64 more = pw_less(fair, pkt->est) & pw_less(fair / PW_FAIR_SILENT_PART, before);
	__u32 dice;

	if (pw_likely(!more || level < first))
		return PW_EXCESS_NONE;
	dice = clock_random();
	/* The part of the flow that does not fit is lost; on the way there, the lower bits say, less. */
	if ((__u64)dice * pkt->est >> 32 <= fair ||
	    level - first <= (pkt->wait >> 18) * (dice & 0xffff))
		return PW_EXCESS_NONE;
	return ecn_is_capable(pkt) && pkt->est < 2 * fair + PW_FAIR_FRAMES * cfg->fair_frame_est
		       ? PW_EXCESS_MARK
		       : PW_EXCESS_DROP;
}
