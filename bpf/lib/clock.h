/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Time and chance. A build with PW_TEST_CLOCK takes both from variables, so that a test decides what
 * time it is and how the dice fall. */
#pragma once

#include "base.h"

#ifdef PW_TEST_CLOCK
volatile __u64 pw_test_now_ns;
volatile __u32 pw_test_random;
#endif

/* CLOCK_MONOTONIC, the clock that fq compares a departure time with. */
static __always_inline __u64 clock_now_ns(void)
{
#ifdef PW_TEST_CLOCK
	return pw_test_now_ns;
#else
	return bpf_ktime_get_ns();
#endif
}

static __always_inline __u32 clock_random(void)
{
#ifdef PW_TEST_CLOCK
	return pw_test_random;
#else
	return bpf_get_prandom_u32();
#endif
}
