/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The table of the pod's current heavy flows, for people to look at. All that is decided by it is whose losses make the
 * queue longer (fair_is_bulk): those of a flow that found no slot do not. */
#pragma once

#include "base.h"
#include "hash.h"

/* A flow that sent nothing heavy for this long gives its slot up. */
#define PW_HEAVY_STALE_NS 2000000000LL
#define PW_HEAVY_EMPTY 0
#define PW_HEAVY_WRITING 1

static __always_inline struct pw_heavy *heavy_slot(struct pw_state *state, __u64 id, __u32 choice)
{
	__u64 slot = (__u32)id >> PW_SLOT_SHIFT;

	/* The second candidate is never the first. The mask stays the last step: before Linux 6.10 the
	 * verifier takes the result of an exclusive or for unbounded. */
	slot ^= choice * (PW_HEAVY_SLOTS / 2 + 1);
	pw_mask(slot, PW_HEAVY_SLOTS - 1);
	return &state->heavy[slot];
}

/* Takes an empty or stale slot; false if another flow or CPU has it. */
static __always_inline bool heavy_own(struct pw_heavy *slot, __u64 now_ns)
{
	__u64 id = PW_READ64(&slot->id);

	if (id == PW_HEAVY_WRITING)
		return false;
	/* Signed: another CPU's clock may be ahead. */
	if (id && (__s64)(now_ns - PW_READ64(&slot->last_seen_ns)) < PW_HEAVY_STALE_NS)
		return false;
	return __sync_val_compare_and_swap(&slot->id, id, PW_HEAVY_WRITING) == id;
}

/* Counts a packet of a heavy flow, and returns what was counted of the flow before, in bytes. Two CPUs that see the first
 * packets of one flow at the same time may give it both slots; the reader adds them up. */
static __always_inline __u64 heavy_record(struct pw_state *state, __u64 id,
					  const struct pw_flow *flow, __u32 bytes, __u64 now_ns)
{
	if (id <= PW_HEAVY_WRITING)
		id |= 2;
#pragma clang loop unroll(full)
	for (__u32 choice = 0; choice < 2; choice++) {
		struct pw_heavy *slot = heavy_slot(state, id, choice);

		if (pw_likely(PW_READ64(&slot->id) == id)) {
			__u64 before = PW_READ64(&slot->bytes);

			__sync_fetch_and_add(&slot->bytes, bytes);
			PW_WRITE64(&slot->last_seen_ns, now_ns);
			return before;
		}
	}
#pragma clang loop unroll(disable)
	for (__u32 choice = 0; choice < 2; choice++) {
		struct pw_heavy *slot = heavy_slot(state, id, choice);

		if (!heavy_own(slot, now_ns))
			continue;
		slot->flow = *flow;
		slot->bytes = bytes;
		slot->first_seen_ns = now_ns;
		slot->last_seen_ns = now_ns;
		/* An exchange, because it is the one store that BPF orders after the others. */
		__sync_lock_test_and_set(&slot->id, id);
		return 0;
	}
	__sync_fetch_and_add(&state->unlisted_heavy_bytes, bytes);
	return 0;
}
