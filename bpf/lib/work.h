/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How every metered program begins: configuration, state, packet, time. */
#pragma once

#include "base.h"
#include "classify.h"
#include "clock.h"
#include "maps.h"
#include "parse.h"
#include "wire.h"

/* False if there is no valid configuration; only work->bytes is set then. */
static __always_inline bool work_begin(struct __sk_buff *skb, struct pw_work *work,
				       bool wire_is_counted)
{
	work->bytes = wire_is_counted ? wire_counted(skb) : skb->len;
	work->cfg = maps_config();
	work->state = maps_state();
	if (pw_unlikely(!work->cfg || !work->state))
		return false;
	parse_packet(skb, work->cfg->l3_only, &work->pkt);
	if (!wire_is_counted)
		work->bytes = wire_computed(skb, work->pkt.headers);
	work->now_ns = clock_now_ns();
	return true;
}
