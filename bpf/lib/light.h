/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How much of the cap light packets have. */
#pragma once

#include "base.h"

/* Of wait_factor, where light packets had an eighth of the cap (trials: docs/contributing/fair-bands.md). */
#define PW_MUCH_LIGHT (PW_WAIT_ONE * 8 / 7)
/* An older one, of 1.07 s, says nothing. Heavy packets measure it every 0.27 s (wait.h), and where there are none nothing
 * waits for light ones. */
#define PW_MUCH_LIGHT_NS (1ULL << 30)

/* All ones if light packets have had much of the cap just now. */
static __always_inline __u64 light_is_much(const struct pw_state *state, __u64 now_ns)
{
	/* Less than nothing where the clock is behind. */
	__u64 age = now_ns - PW_READ64(&state->wait_since);

	return pw_less(PW_MUCH_LIGHT, PW_READ64(&state->wait_factor)) &
	       pw_less(age + PW_MUCH_LIGHT_NS, 2 * PW_MUCH_LIGHT_NS);
}
