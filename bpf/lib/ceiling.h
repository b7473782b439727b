/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The ceiling: a second meter behind a queue, at the other end of the pair. It lets through all that the queue can let out,
 * and drops what came past it. What leaves the pod comes by there whatever the pod does on its own side. The ceiling
 * of the pod's group is asked behind that, in both directions (group.h).
 */
#pragma once

#include "base.h"
#include "exempt.h"
#include "group.h"
#include "maps.h"
#include "meter.h"
#include "parse.h"
#include "verdict.h"
#include "wire.h"

static __always_inline bool ceiling_admits(const struct pw_config *cfg, struct pw_state *state,
					   __u32 bytes)
{
	__u64 now_ns = clock_coarse_ns(), level;
	struct pw_ask ask = {
		.now_ns = &now_ns,
		.cost = meter_cost(&cfg->ceiling_rate, meter_size(bytes)),
		.limit = cfg->ceiling_burst,
		.full = cfg->ceiling_burst,
	};

	return meter_take(&state->ceiling_tat, &cfg->ceiling_rate, &ask, &level);
}

/* Only a packet that is dropped is counted: the others were, on their way here. */
static __always_inline int ceiling_packet(struct __sk_buff *skb)
{
	__u32 number = maps_slot_number(skb), bytes = skb->len;
	struct pw_slot *slot = maps_slot(number);
	const struct pw_config *cfg;
	struct pw_packet *pkt;

	if (pw_unlikely(!slot))
		return PW_NEXT;
	cfg = maps_config(slot);
	pkt = maps_scratch();
	if (pw_unlikely(!cfg || !pkt))
		return verdict_shared(&slot->state, PW_FAILOPEN_CONFIG, bytes);
	if (cfg->subnets_mode || skb->gso_size) {
		parse_packet(skb, cfg->l3_only, pkt);
		/* Never more than the queue was charged: older kernels leave out what is inside a tunnel (qdisc_pkt_len_init). */
		bytes = wire_computed(skb, pkt, false);
		exempt_look(pkt, cfg, slot, number);
		if (pkt->light)
			return PW_NEXT;
	}
	/* With another rate the queue begins anew with a full bucket. */
	meter_begin(&slot->state.ceiling_tat, &slot->state.ceiling_for, &cfg->ceiling_rate);
	if (pw_unlikely(!ceiling_admits(cfg, &slot->state, bytes)))
		return verdict_shared(&slot->state, PW_DROP_CEILING, bytes);
	/* Its drops are the group's: the pod did nothing that it may not. */
	return pw_likely(group_admits(cfg, bytes)) ? PW_NEXT : PW_DROP;
}
