/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of a node, which all its pods share. Each direction of each interface has a slot of its own in the slab. */
#pragma once

#include "base.h"

/* One chunk of the slab. The loader makes as many as are needed; none is in a program. */
struct pw_chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PW_CHUNK_SLOTS);
	/* User space writes configurations and reads counters where they are. */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct pw_slot);
} pw_chunk SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, PW_CHUNKS);
	__type(key, __u32);
	__array(values, struct pw_chunk);
} pw_slab SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pw_packet);
} pw_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pw_layout);
} pw_layout SEC(".maps");

/* Slots by the device at the host side, for programs on TCX hooks there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pw_host);
	__type(value, __u32);
} pw_hosts SEC(".maps");

/* The groups by their keys. Programs add what is missing, and an agent removes what no slot names. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 11);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct pw_group);
} pw_groups SEC(".maps");

/* The exempt subnets of all slots. A trie allocates by the entry. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 18);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pw_subnet);
	__type(value, __u8);
} pw_subnets SEC(".maps");

/* A constant that the loader replaces. The verifier knows it, and leaves out what the others would do. */
static __always_inline __u32 maps_carrier(void)
{
	__u64 carrier = PW_CARRIER;

#ifdef __bpf__
	asm volatile("%0 = %1 ll" : "=r"(carrier) : "i"(PW_CARRIER));
#endif
	return (__u32)carrier;
}

static __always_inline __u32 maps_slot_number(const struct __sk_buff *skb)
{
	__u32 carrier = maps_carrier();
	struct pw_host key;
	const __u32 *number;

	if (carrier == PW_CARRIER_CLASSID)
		return skb->tc_classid;
	if (carrier >= PW_FIRST_SLOT)
		return carrier;
	key.ifindex = skb->ifindex;
	key.direction = carrier;
	number = bpf_map_lookup_elem(&pw_hosts, &key);
	return number ? *number : 0;
}

static __always_inline struct pw_slot *maps_slot(__u32 number)
{
	__u32 chunk = number >> PW_CHUNK_BITS, index = number & (PW_CHUNK_SLOTS - 1);
	void *slots = bpf_map_lookup_elem(&pw_slab, &chunk);

	return slots ? bpf_map_lookup_elem(slots, &index) : 0;
}

static __always_inline struct pw_packet *maps_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&pw_scratch, &zero);
}

/* The configuration in use, or NULL if there is none that this program understands. The writer fills the one that is
 * not in use and then turns to it, so that no packet sees half of an old and half of a new configuration. */
static __always_inline const struct pw_config *maps_config(const struct pw_slot *slot)
{
	const struct pw_config *cfg = &slot->config[PW_READ32(&slot->active) & 1];

	if (cfg->abi_version != PW_ABI_VERSION)
		return 0;
	if (cfg->policy < PW_POLICY_STRICT || cfg->policy > PW_POLICY_FLAT)
		return 0;
	return cfg;
}
