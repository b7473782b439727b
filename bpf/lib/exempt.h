/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Exempt subnets: a node's health checks or a backup network that shall not count. */
#pragma once

#include "base.h"
#include "maps.h"
#include "parse.h"

/* Sets pkt->light for a packet whose remote address is exempt: the destination of what leaves the pod, and the source of what
 * enters it. The key is not on the stack: where nothing is exempt the verifier would find another one, and walk all that
 * follows twice. */
static __always_inline void exempt_look(struct pw_packet *pkt, const struct pw_config *cfg,
					const struct pw_slot *slot, __u32 number)
{
	struct pw_subnet *key = &pkt->subnet;
	const __u32 *remote = pkt->flow.src;
	bool found;

	if (pw_unlikely(cfg->subnets_mode && pkt->family)) {
		key->prefix_bits = PW_SUBNET_SLOT_BITS + 128;
		key->slot = number;
		key->epoch = slot->epoch;
		/* The destination follows. */
		remote += 4 & pw_less(cfg->direction, PW_DIR_INGRESS);
		__builtin_memcpy(key->addr, remote, sizeof(key->addr));
		pw_forget();
		found = bpf_map_lookup_elem(&pw_subnets, key) != 0;
		pkt->light = found == (cfg->subnets_mode == PW_SUBNETS_UNSHAPED);
	}
	pw_forget();
}
