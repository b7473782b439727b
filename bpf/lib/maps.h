/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of one pod and direction. Each attachment loads its programs with maps of its own: no key
 * has to name the pod, and what a pod can make us keep is bounded by its own maps. */
#pragma once

#include "base.h"

/* Two entries: the writer fills the one that is not in use and then turns pw_active to it, so no
 * packet sees half of an old and half of a new configuration. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct pw_config);
} pw_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} pw_active SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pw_state);
} pw_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pw_counters);
} pw_counters SEC(".maps");

/* Only the *_x programs use it. A trie allocates by the entry: 1024 bounds what one configuration can
 * ask for, and the loader sets the number it needs. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pw_subnet);
	__type(value, __u8);
} pw_subnets SEC(".maps");

/* The configuration in use, or NULL if there is none that this program understands. */
static __always_inline const struct pw_config *maps_config(void)
{
	__u32 zero = 0;
	const __u32 *active = bpf_map_lookup_elem(&pw_active, &zero);
	const struct pw_config *cfg;
	__u32 entry;

	if (!active)
		return 0;
	entry = PW_READ32(active) & 1;
	cfg = bpf_map_lookup_elem(&pw_config, &entry);
	if (!cfg || cfg->abi_version != PW_ABI_VERSION)
		return 0;
	if (cfg->policy < PW_POLICY_STRICT || cfg->policy > PW_POLICY_FLAT)
		return 0;
	return cfg;
}

static __always_inline struct pw_state *maps_state(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&pw_state, &zero);
}

static __always_inline struct pw_counters *maps_counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&pw_counters, &zero);
}
