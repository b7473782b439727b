/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The headers compiled for the machine that tests run on: what a test calls as a function, without a kernel. No program
 * includes this. */
#pragma once

#define PW_TEST_CLOCK
#include "base.h"

/* The parts of a packet are set by the test; none has bytes. */
#define bpf_l3_csum_replace(...) 0
#define bpf_skb_load_bytes(...) 0
#define bpf_skb_store_bytes(...) 0

#include "band.h"
#include "ceiling.h"

static void host_clock(__u64 now_ns, __u32 random)
{
	pw_test_now_ns = now_ns;
	pw_test_coarse_ns = now_ns;
	pw_test_random = random;
}

static void host_sender(bool is, __u32 out)
{
	pw_test_has_sender = is;
	pw_test_sender.packets_out = out;
}

/* A packet that was parsed. */
static struct pw_work host_work(struct pw_slot *slot, struct pw_packet *pkt, __u32 bytes)
{
	pkt->size = meter_size(bytes);
	return (struct pw_work){
		.slot = slot,
		.cfg = &slot->config[0],
		.state = &slot->state,
		.pkt = pkt,
		.now_ns = pw_test_coarse_ns,
		.bytes = bytes,
	};
}

static enum pw_class host_classify(struct pw_slot *slot, struct pw_packet *pkt, __u32 bytes)
{
	struct pw_work work = host_work(slot, pkt, bytes);

	pkt->light = 0;
	return classify_packet(&work);
}

static __u32 host_band(struct pw_slot *slot, struct pw_packet *pkt, __u32 bytes)
{
	struct pw_work work = host_work(slot, pkt, bytes);
	struct __sk_buff skb = {};
	__u32 disposition;

	pkt->light = 0;
	disposition = band_decide(&skb, &work);
	verdict_count(&slot->state, disposition, bytes);
	return disposition;
}

/* Of a packet that was classified as heavy. */
static enum pw_excess host_excess(struct pw_slot *slot, struct pw_packet *pkt, __u32 bytes)
{
	struct pw_work work = host_work(slot, pkt, bytes);
	struct __sk_buff skb = {};
	enum pw_excess excess = total_excess(&skb, &work, PW_CLASS_HEAVY);

	if (excess == PW_EXCESS_DROP)
		total_drop_early(&work);
	return excess;
}

static enum pw_excess host_draw(struct pw_slot *slot, struct pw_packet *pkt, __u32 bytes)
{
	const struct pw_config *cfg = &slot->config[0];

	pkt->size = meter_size(bytes);
	pkt->wait = fair_wait(cfg, pkt->fair, pkt);
	return fair_draw(cfg, pkt);
}

/* How long heavy packets shall wait by the state. */
static __u64 host_wait(struct pw_slot *slot)
{
	struct pw_packet pkt = {
		.fair = (__u32)slot->state.fair & PW_FAIR_SHARE,
		.flood = (__u32)slot->state.fair,
		.extra = slot->state.fair_extra,
		.cut = slot->state.fair_cut,
	};

	return fair_wait(&slot->config[0], pkt.fair, &pkt);
}

static void host_look(struct pw_slot *slot, __u64 level, __u32 tick)
{
	struct pw_packet pkt = { .level = level };

	fair_look(&slot->config[0], &slot->state, &pkt, tick);
}

static bool host_take(__u64 *tat, const struct pw_rate *rate, __u32 bytes, __u64 limit)
{
	__u64 now_ns = pw_test_coarse_ns, level;
	struct pw_ask ask = {
		.now_ns = &now_ns,
		.cost = meter_cost(rate, meter_size(bytes)),
		.limit = limit,
		.full = limit,
	};

	return meter_take(tat, rate, &ask, &level);
}

static bool host_ceiling(struct pw_slot *slot, __u32 bytes)
{
	const struct pw_config *cfg = &slot->config[0];

	meter_begin(&slot->state.ceiling_tat, &slot->state.ceiling_for, &cfg->ceiling_rate);
	return ceiling_admits(cfg, &slot->state, bytes);
}

static __u32 host_sketch(struct pw_slot *slot, __u64 id, __u32 tick, __u64 cost)
{
	return sketch_update(&slot->config[0], &slot->state, id, tick, cost, true);
}

static __u32 host_recent(struct pw_slot *slot, __u64 id, __u32 tick, __u64 cost)
{
	return sketch_recent(&slot->config[0], &slot->state, id, tick, cost);
}
