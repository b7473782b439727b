/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What waits in the queue of a pod in a group, and what left it. The loop that divides the group's limit reads both from
 * memory, and need not ask the kernel: what waits is what waited when the last packet came, without what left since.
 */
#pragma once

#include "backlog.h"
#include "base.h"
#include "work.h"

/* Behind the queue. */
static __always_inline void left_count(struct pw_slot *slot, const struct pw_config *cfg,
				       __u32 bytes)
{
	if (pw_unlikely(cfg->in_group))
		__sync_fetch_and_add(&slot->left, bytes);
}

/* In front of it, for a packet that goes in. A queue that drops it all the same has less until the next one comes. */
static __always_inline void left_note(const struct __sk_buff *skb, const struct pw_work *work)
{
	struct pw_slot *slot = (struct pw_slot *)work->slot;
	__u32 waits = 0;

	if (pw_likely(!work->cfg->in_group) || !backlog_seen(skb, &waits))
		return;
	PW_WRITE64(&slot->waited_left, PW_READ64(&slot->left));
	PW_WRITE64(&slot->waited, (__u64)waits + work->bytes);
}
