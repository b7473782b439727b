/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The ceiling of a group: one meter of what all pods of the group have in a direction, behind their queues. While the agent
 * divides the group's limit, the shares of the queues amount to it and the meter drops nothing. Between two of the agent's
 * ticks, and when there is no agent, they can amount to more.
 */
#pragma once

#include "base.h"
#include "clock.h"
#include "maps.h"
#include "meter.h"

/* Whoever comes first adds the group: no packet passes unmetered because it was removed. NULL if the node has too many. */
static __always_inline struct pw_group *group_of(const struct pw_config *cfg)
{
	struct pw_group none = {};
	struct pw_group *group;
	__u64 key = cfg->group;

	group = bpf_map_lookup_elem(&pw_groups, &key);
	if (pw_likely(group))
		return group;
	bpf_map_update_elem(&pw_groups, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pw_groups, &key);
}

/* By the exact clock: the other one would let an idle group send for the length of a timer interrupt more than its burst.
 * The limit is a part of the key: while user space gives the pods another one, one by one, those of both limits have a
 * meter each. */
static __always_inline bool group_admits(const struct pw_config *cfg, __u32 bytes)
{
	struct pw_group *group;
	__u64 now_ns, level;
	struct pw_ask ask;

	if (pw_likely(!cfg->in_group))
		return true;
	group = group_of(cfg);
	if (pw_unlikely(!group))
		return true;
	meter_begin(&group->tat, &group->tat_for, &cfg->group_rate);
	now_ns = clock_exact_ns();
	ask.now_ns = &now_ns;
	ask.cost = meter_cost(&cfg->group_rate, meter_size(bytes));
	ask.limit = cfg->group_burst;
	ask.full = cfg->group_burst;
	if (pw_likely(meter_take(&group->tat, &cfg->group_rate, &ask, &level)))
		return true;
	__sync_fetch_and_add(&group->dropped.packets, 1);
	__sync_fetch_and_add(&group->dropped.bytes, bytes);
	return false;
}
