/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One packet on its way through a metered program, and how each of them begins: slot, configuration, packet, time. */
#pragma once

#include "base.h"
#include "clock.h"
#include "exempt.h"
#include "maps.h"
#include "meter.h"
#include "parse.h"
#include "wire.h"

/* One packet on its way through a program. */
struct pw_work {
	const struct pw_slot *slot;
	const struct pw_config *cfg;
	struct pw_state *state;
	struct pw_packet *pkt;
	__u64 now_ns; /* as of the last timer interrupt, or exact */
	__u64 level; /* of the total meter when it was asked */
	__u64 cost; /* at the cap, 1/64 ns, when that meter was asked */
	__u32 bytes; /* on the wire */
	__u32 number; /* of the slot */
};

static __always_inline __u64 work_cost(const struct pw_work *work, const struct pw_rate *rate)
{
	return meter_cost(rate, work->pkt->size);
}

/* False if there is no slot, or no valid configuration in it; only state, which may be NULL, and bytes are set then.
 * The kernel counted the wire bytes of a packet if it is on its way out. */
static __always_inline bool work_begin(struct __sk_buff *skb, struct pw_work *work,
				       bool wire_is_counted)
{
	struct pw_slot *slot;

	work->number = maps_slot_number(skb);
	slot = maps_slot(work->number);
	work->slot = slot;
	work->state = 0;
	work->bytes = wire_is_counted ? wire_counted(skb) : skb->len;
	if (pw_unlikely(!slot))
		return false;
	work->state = &slot->state;
	work->cfg = maps_config(slot);
	work->pkt = maps_scratch();
	if (pw_unlikely(!work->cfg || !work->pkt))
		return false;
	work->now_ns = clock_coarse_ns();
	parse_packet(skb, work->cfg->l3_only, work->pkt);
	exempt_look(work->pkt, work->cfg, slot, work->number);
	if (!wire_is_counted)
		work->bytes = wire_computed(skb, work->pkt, true);
	/* Kept where the verifier does not know it: it would walk all that follows for both. */
	work->pkt->size = meter_size(work->bytes);
	pw_forget();
	return true;
}
