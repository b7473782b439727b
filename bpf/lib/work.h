/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How every metered program begins: configuration, state, packet, time. */
#pragma once

#include "base.h"
#include "classify.h"
#include "clock.h"
#include "maps.h"
#include "parse.h"
#include "wire.h"

/* False if there is no valid configuration; only counters, which may be NULL, and bytes are set then.
 * The kernel counted the wire bytes of a packet if it is on its way out. */
static __always_inline bool work_begin(struct __sk_buff *skb, struct pw_work *work,
				       bool wire_is_counted)
{
	work->counters = maps_counters();
	work->bytes = wire_is_counted ? wire_counted(skb) : skb->len;
	work->cfg = maps_config();
	work->state = maps_state();
	if (pw_unlikely(!work->cfg || !work->state || !work->counters))
		return false;
	work->pkt = &work->counters->scratch;
	work->now_ns = clock_coarse_ns();
	parse_packet(skb, work->cfg->l3_only, work->pkt);
	if (!wire_is_counted)
		work->bytes = wire_computed(skb, work->pkt);
	return true;
}
