/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Access to the bytes of a packet, wherever they are. */
#pragma once

#include "base.h"

/* Bounds every offset for the verifier: 5 extension headers of at most 2048 bytes, and the rest. */
#define PW_MAX_OFFSET 0x3fff

#ifdef PW_TEST_CLOCK
/* BPF_PROG_TEST_RUN builds linear packets only: a test turns off what is for them. */
volatile __u32 pw_test_copy;
#define PW_IN_PLACE !pw_test_copy
#else
#define PW_IN_PLACE true
#endif

/* size bytes of the packet from off on: in place if they are in the linear part, else copied to buf.
 * NULL if the packet ends before them. */
static __always_inline const void *parse_at(struct __sk_buff *skb, __u32 off, void *buf,
					    const __u32 size)
{
	const void *data = (const void *)(long)skb->data;
	const void *end = (const void *)(long)skb->data_end;

	if (off > PW_MAX_OFFSET)
		return 0;
	data += off;
	if (PW_IN_PLACE && pw_likely(data + size <= end))
		return data;
	return bpf_skb_load_bytes(skb, off, buf, size) ? 0 : buf;
}
