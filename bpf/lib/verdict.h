/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From what became of a packet to the counters and the answer.
 *
 * On a hook that others can use: next or drop. TC_ACT_OK (0) is TCX_PASS there and would switch off
 * every program and filter behind ours, network policy included.
 */
#pragma once

#include <linux/pkt_cls.h>

#include "base.h"
#include "maps.h"

#define PW_NEXT TC_ACT_UNSPEC /* TCX_NEXT */
#define PW_DROP TC_ACT_SHOT /* TCX_DROP */
#define PW_REDIRECT TC_ACT_REDIRECT
/* On our own qdisc: tc_classid is the class. */
#define PW_OWN_CLASS TC_ACT_OK

static __always_inline bool verdict_is_drop(__u32 disposition)
{
	return (disposition >= PW_DROP_HORIZON && disposition <= PW_DROP_POLICED) ||
	       disposition == PW_DROP_CEILING;
}

static __always_inline void verdict_count(struct pw_state *state, __u32 disposition, __u32 bytes)
{
	struct pw_count *count;

	if (!state || disposition >= PW_DISPOSITIONS)
		return;
	count = &state->counts[disposition];
	__sync_fetch_and_add(&count->packets, 1);
	__sync_fetch_and_add(&count->bytes, bytes);
}

/* On our own qdisc, whose lock lets one packet after the other in: an atomic step takes several times as long. While a
 * queue moves to another device both queues count, and one may lose a packet of the other from the count. */
static __always_inline void verdict_count_own(struct pw_state *state, __u32 disposition,
					      __u32 bytes)
{
	struct pw_count *count;

	if (!state || disposition >= PW_DISPOSITIONS)
		return;
	count = &state->counts[disposition];
	PW_WRITE64(&count->packets, count->packets + 1);
	PW_WRITE64(&count->bytes, count->bytes + bytes);
}

/* The only way to an answer on a shared hook. */
static __always_inline int verdict_shared(struct pw_state *state, __u32 disposition, __u32 bytes)
{
	verdict_count(state, disposition, bytes);
	return verdict_is_drop(disposition) ? PW_DROP : PW_NEXT;
}
