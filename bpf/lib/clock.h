/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Time and chance. A build with PW_TEST_CLOCK takes both from variables, so that a test decides what
 * time it is and how the dice fall. */
#pragma once

#include "base.h"

#ifdef PW_TEST_CLOCK
volatile __u64 pw_test_now_ns;
volatile __u64 pw_test_coarse_ns;
volatile __u32 pw_test_random;
#endif

/* One timer interrupt at HZ = 100, the slowest kernel. */
#define PW_COARSE_LAG_NS 10000000ULL

/* CLOCK_MONOTONIC. It reads the counter of the processor, which is half of what a packet may cost. */
static __always_inline __u64 clock_exact_ns(void)
{
#ifdef PW_TEST_CLOCK
	return pw_test_now_ns;
#else
	return bpf_ktime_get_ns();
#endif
}

/* The same clock as of the last timer interrupt: up to PW_COARSE_LAG_NS behind, and ten times cheaper. A
 * level seen with it is never below the true one, so what it admits the exact clock would, too. */
static __always_inline __u64 clock_coarse_ns(void)
{
#ifdef PW_TEST_CLOCK
	return pw_test_coarse_ns;
#else
	return bpf_ktime_get_coarse_ns();
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
