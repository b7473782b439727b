/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How every metered program begins: slot, configuration, packet, time. */
#pragma once

#include "base.h"
#include "classify.h"
#include "clock.h"
#include "maps.h"
#include "parse.h"
#include "wire.h"

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
	if (!wire_is_counted)
		work->bytes = wire_computed(skb, work->pkt, true);
	/* Kept where the verifier does not know it: it would walk all that follows for both. */
	work->pkt->size = meter_size(work->bytes);
	pw_forget();
	return true;
}
