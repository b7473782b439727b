/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Exempt subnets: a node's health checks or a backup network that shall not count. */
#pragma once

#include "base.h"
#include "maps.h"
#include "parse.h"

/* The remote address is the destination of what leaves the pod and the source of what enters it. */
static __always_inline bool exempt_matches(const struct pw_packet *pkt, const struct pw_config *cfg,
					   const struct pw_slot *slot, __u32 number)
{
	struct pw_subnet key;
	bool found;

	/* Written in any case, so that the verifier finds the same stack on each way from here. */
	key.prefix_bits = PW_SUBNET_SLOT_BITS + 128;
	key.slot = number;
	key.epoch = slot->epoch;
	if (cfg->direction == PW_DIR_INGRESS)
		__builtin_memcpy(key.addr, pkt->flow.src, sizeof(key.addr));
	else
		__builtin_memcpy(key.addr, pkt->flow.dst, sizeof(key.addr));
	if (!pkt->family || cfg->subnets_mode == PW_SUBNETS_NONE)
		return false;
	found = bpf_map_lookup_elem(&pw_subnets, &key) != 0;
	return found == (cfg->subnets_mode == PW_SUBNETS_UNSHAPED);
}
