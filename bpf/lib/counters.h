/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Packets and bytes by disposition, per CPU: plain adds lose nothing. */
#pragma once

#include "base.h"
#include "maps.h"

static __always_inline void counters_add(enum pw_disposition disposition, __u32 bytes)
{
	struct pw_counters *counters = maps_counters();

	if (!counters)
		return;
	counters->packets[disposition]++;
	counters->bytes[disposition] += bytes;
}
