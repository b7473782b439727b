/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Everything that Go and C must agree on. bpf2go turns these structs into the Go types, and the values stay pinned across
 * upgrades: a change of meaning or layout raises PW_ABI_VERSION. A new field in place of padding does not, if its 0
 * changes nothing. */
#pragma once

#include <linux/types.h>

#define PW_ABI_VERSION 13

/* Sketch: PW_SKETCH_ROWS rows of PW_SKETCH_COLS cells. With all flows together at the cap, a cell
 * holds 1/512 of the decayed total on average, 0.2 % of the cap. What flows offer beyond the cap is in it, too. */
#define PW_SKETCH_ROWS 3
#define PW_SKETCH_COL_BITS 9
#define PW_SKETCH_COLS (1 << PW_SKETCH_COL_BITS)
/* Elephants use half of these columns for rates over a second: enough while light flows together have up to 400 times the
 * threshold (tried). Of the others they use some for a sketch of the heavy flows alone. At the default threshold, 5 % of the
 * cap, there are some twenty; one in 300 then shares all three of its cells with others, (20/128)^3. */
#define PW_RECENT_COLS (PW_SKETCH_COLS / 4)
#define PW_RECENT_FIRST (PW_SKETCH_COLS / 2)
/* Recent flows: a flow has a place in each row. */
#define PW_FLOW_ROWS 2
#define PW_FLOW_COL_BITS 8
#define PW_FLOW_COLS (1 << PW_FLOW_COL_BITS)
#define PW_HEAVY_SLOTS 16 /* power of two */
/* The minor number that pw_class answers without a configuration: within the cap in every tree. */
#define PW_FALLBACK_CLASS 2

/* The estimate of a flow that has all of the cap, or in the policy elephants as much as the threshold;
 * estimates saturate at 2^32-1. */
#define PW_EST_ONE (1U << 24)
/* One tick of sketch and hold time is 2^20 ns. */
#define PW_TICK_SHIFT 20
/* Waits are counted in units of 2^14 ns, 16 us: the first eight units have a bucket each, and from there on every
 * octave has eight, up to 4.3 s. */
#define PW_WAIT_UNIT_SHIFT 14
#define PW_WAIT_STEPS 8
#define PW_WAIT_UNITS (1U << 18)
#define PW_WAIT_BUCKETS 128
#define PW_WAIT_LIGHT 0
#define PW_WAIT_HEAVY 1
#define PW_WAIT_BANDS 2
#define PW_WAIT_ONE (1ULL << 16) /* the unit of wait_factor */
/* Meter time is in 1/64 ns. */
#define PW_METER_SHIFT 6
/* The multilinear hash: a key for each 32-bit word (2 x 4 address words, ports, protocol and kind) and a constant,
 * for each half. First come the keys of the six words that only IPv6 has. */
#define PW_HASH_KEYS 11
#define PW_HASH_KEYS_IPV6 6

enum pw_policy {
	PW_POLICY_STRICT = 1,
	PW_POLICY_ELEPHANTS = 2,
	PW_POLICY_FLAT = 3,
};

enum pw_direction {
	PW_DIR_EGRESS = 1,
	PW_DIR_INGRESS = 2,
};

enum pw_subnets_mode {
	PW_SUBNETS_NONE = 0,
	PW_SUBNETS_UNSHAPED = 1, /* a remote address in the trie is exempt */
	PW_SUBNETS_SHAPED = 2, /* a remote address outside the trie is exempt */
};

/* What became of a packet; indexes struct pw_counters. Retired numbers are not reused. */
enum pw_disposition {
	PW_LIGHT = 0, /* first band, or passed at once as light */
	PW_CONFORMING = 1, /* heavy, passed at once and unmarked (policing) */
	PW_PACED = 2, /* heavy, sent to the second band */
	PW_MARKED = 3, /* heavy, passed with ECN CE */
	PW_EXEMPT = 4, /* bypasses the cap: exempt subnet */
	PW_DROP_HORIZON = 5, /* the heavy band is horizon x cap deep already */
	PW_DROP_EARLY = 6, /* heavy, beyond the flow's fair share; policing: below the hard limit */
	PW_DROP_POLICED = 7, /* policing: past the hard limit */
	PW_FAILOPEN_CONFIG = 8, /* no valid configuration: passed unmetered */
	PW_FAILOPEN_STAMP = 9, /* retired: programs set no departure times */
	PW_DROP_CEILING = 10, /* at the host side: it came past the queue */
	PW_WOULD_WAIT = 11, /* observed: heavy, and it would have waited in the queue */
	PW_WOULD_DROP = 12, /* observed: policing at this limit would have dropped it */
	PW_DISPOSITIONS = 13,
};

/* A rate for a meter or for the sketch: cost = (bytes * mult + 2^shift - 1) >> shift.
 * mult < 2^44 and bytes < 2^20 keep the product below 2^64. */
struct pw_rate {
	__u64 mult;
	__u32 shift;
	__u32 pad;
};

/* What became of packets. Several CPUs add to it at a time. */
struct pw_count {
	__u64 packets;
	__u64 bytes; /* wire bytes */
};

/* What a light packet needs is in the first two cache lines. */
struct pw_config {
	__u32 abi_version;
	__u8 policy; /* enum pw_policy */
	__u8 direction; /* enum pw_direction: which address is the remote one */
	__u8 l3_only; /* the device has no Ethernet header */
	__u8 subnets_mode; /* enum pw_subnets_mode */

	struct pw_rate light_rate; /* cost in 1/64 ns: lightShare x cap */
	__u64 light_tolerance; /* 1/64 ns */
	struct pw_rate total_rate; /* cost in 1/64 ns: the cap */
	/* 1/64 ns: what passes at once after idle. The meters see the time as of the last timer
	 * interrupt, so where they carry the cap (pw_police) the writer takes off the
	 * resolution of CLOCK_MONOTONIC_COARSE. */
	__u64 total_burst;
	__u64 total_horizon; /* 1/64 ns, below 2^48: queue depth beyond the burst */
	struct pw_rate sketch_rate; /* cost in estimates: PW_EST_ONE is the cap, or the threshold */
	/* A flow is held for its fair share, or light_least if that is more, or light_most if that is less, and
	 * becomes heavy a quarter above that; estimates. */
	__u32 light_least;
	__u32 light_most;
	__u32 frame_est; /* what a full frame adds to an estimate: as much is overlooked */
	__u32 hold_ticks; /* how long a heavy flow stays so after it had its share */
	__u32 light_priority; /* skb->priority to set */
	__u16 light_class; /* minor of the class to answer on our own qdisc */
	__u8 half_life_shift; /* the sketch halves in 2^half_life_shift ticks */
	__u8 observe; /* pw_police: counts what the limit would do, and does nothing */

	/* How long heavy packets shall wait, 1/64 ns: fair_each for every flow that is active, but at least and
	 * at most so long. */
	__u64 fair_each;
	__u64 fair_least;
	__u64 fair_most;
	/* Of what tells the share that heavy flows have of the cap, PW_EST_ONE: under strict the sketch itself. */
	struct pw_rate fair_rate;
	__u32 fair_frame_est; /* what a full frame adds to it */

	__u32 heavy_priority;
	__u32 exempt_priority;
	__u16 heavy_class;
	__u16 exempt_class;
	__u16 drop_class; /* its queue refuses every packet; 0: the verdict is drop */
	__u8 fair_half_life_shift; /* it halves in 2^fair_half_life_shift ticks */
	__u8 in_group; /* 1 if the pod is in a group in this direction: the rest of it is in a cache line of its own */
	__u32 redirect_ifindex; /* pw_redirect: the ifb */

	struct pw_rate ceiling_rate; /* cost in 1/64 ns: somewhat more than the cap */
	__u64 ceiling_burst; /* 1/64 ns */

	__u64 group; /* key of the pod's group in this direction */
	struct pw_rate group_rate; /* cost in 1/64 ns: somewhat more than the group's limit */
	__u64 group_burst; /* 1/64 ns */
	__u64 fair_spare; /* 1/64 ns: beside a flood fair_each may become shorter by as much */
	__u64 reserved[3]; /* 0: they fill the last cache line of the configuration */
};

/* What the pods of a group have together: the value of pw_groups. */
struct pw_group {
	__u64 tat; /* 1/64 ns, wrapping */
	__u64 tat_for; /* the rate that it is of, as meter_begin */
	struct pw_count dropped;
};

/* est as of tick; read and written as one word. */
struct pw_cell {
	__u32 est;
	__u32 tick;
};

struct pw_flow {
	__u32 src[4]; /* network order; IPv4 as ::ffff:a.b.c.d */
	__u32 dst[4];
	__u16 sport; /* network order; 0 where the protocol has none, and for fragments */
	__u16 dport;
	__u8 protocol; /* IP protocol */
	__u8 kind; /* enum pw_flow_kind */
	__u16 ethertype; /* network order, behind VLAN tags; 0 if the packet is too short for one */
};

enum pw_flow_kind {
	PW_FLOW_PORTS = 1, /* 5-tuple */
	PW_FLOW_HOSTS = 2, /* host pair and protocol: ICMP, fragments (protocol 0), others */
	PW_FLOW_ETHER = 3, /* EtherType only */
};

/* One of the pod's current heavy flows. id is the 64-bit flow hash; 0 = empty, 1 = being written. */
struct pw_heavy {
	__u64 id;
	__u64 bytes; /* since the slot was taken */
	__u64 first_seen_ns; /* CLOCK_MONOTONIC */
	__u64 last_seen_ns;
	struct pw_flow flow;
};

struct pw_state {
	/* What a light packet needs, up to its count. */
	__u64 light_tat; /* 1/64 ns, wrapping */
	__u64 total_tat;
	__u64 fair; /* the fair share as an estimate, flags as in fair.h, and above them the tick that it is as of */
	__u64 wait_clock; /* when the first band will have sent what is in it, 1/64 ns; as in wait.h */
	struct pw_count counts[PW_DISPOSITIONS];
	/* What a heavy packet needs besides, a cache line. */
	__u64 fair_extra; /* how much longer heavy packets shall wait because of losses, 1/64 ns */
	/* The tick in which a TCP flow last lost a packet for its share, or was marked. Above it, 16 bits each, when a flood
	 * last lost one, and by which part the wait is shorter for that, as in fair.h. */
	__u64 fair_cut;
	__u64 wait_frame; /* what one packet of the second band costs, 1/64 ns; as in wait.h */
	/* As in light.h. */
	__u64 wait_factor; /* how much longer heavy packets wait because light ones come meanwhile, 1/PW_WAIT_ONE */
	__u64 wait_since; /* when that was measured, ns */
	/* As in active.h. */
	__u64 active_period;
	__u64 active_before;
	__u64 active_now;
	/* Few packets need the rest, up to the cells. */
	__u64 wait_bytes; /* of the light packets when wait_factor was measured */
	__u64 unlisted_heavy_bytes; /* heavy bytes of flows that found no slot */
	__u64 established_tat; /* of what established flows took beyond the light-only meter */
	__u64 control_tat; /* of ARP and neighbour discovery */
	__u64 ceiling_tat;
	__u64 ceiling_for; /* the rate that it is of, as meter_begin */
	struct pw_cell newcomers; /* what heavy packets of new flows amount to */
	struct pw_cell cells[PW_SKETCH_ROWS][PW_SKETCH_COLS];
	__u32 flows[PW_FLOW_ROWS][PW_FLOW_COLS]; /* as in flows.h */
	struct pw_heavy heavy[PW_HEAVY_SLOTS];
	__u64 waited_ns[PW_WAIT_BANDS];
	__u64 waits[PW_WAIT_BANDS][PW_WAIT_BUCKETS]; /* packets that waited so long */
};

/* A slot of the slab: all that the programs know of one direction of one interface. Only user space writes the
 * first 64 bytes, and the configurations.
 */
struct pw_slot {
	__u64 owner; /* a hash of whose it is; 0: nobody's */
	__u64 since_ns; /* CLOCK_BOOTTIME at which it was taken or given back */
	__u32 active; /* its lowest bit: which configuration is in use */
	__u32 epoch; /* how often it was taken; a part of the key of its subnets */
	/* Only user space reads the rest of the first 64 bytes. */
	__u8 program[16]; /* which of the programs it is for */
	__u8 side; /* and on which device */
	__u8 build[23]; /* the release that wrote the configuration */
	struct pw_config config[2];
	/* The keys of IPv4 are the last 80 bytes of hash_keys. They and the first 48 of the state fill two cache lines. */
	__u64 pad[4];
	__u64 hash_keys[PW_HASH_KEYS][2]; /* random, drawn when it is taken */
	struct pw_state state;
	/* An odd number of cache lines: at a power of two the lines that each packet needs would displace each
	 * other's, pod by pod. */
	__u64 tail[7];
};

/* LPM trie key: the slot, its epoch, then IPv4 as ::ffff:0:0/96. */
struct pw_subnet {
	__u32 prefix_bits; /* of all that follows */
	__u32 slot;
	__u32 epoch;
	__u8 addr[16];
};

#define PW_SUBNET_SLOT_BITS 64 /* of slot and epoch */

/* Where this kernel has what leads from a packet to the queue of its device: offsets in bytes. All 0 where nobody could
 * tell. */
struct pw_layout {
	__u32 skb_dev; /* sk_buff.dev */
	__u32 dev_qdisc; /* net_device.qdisc */
	__u32 qdisc_backlog; /* Qdisc.qstats.backlog */
};

/* Key of pw_hosts. */
struct pw_host {
	__u32 ifindex; /* in the host's network namespace */
	__u32 direction; /* enum pw_direction */
};

/* The slab is an array of arrays, so that a node pays for the slots that it needs. A slot's number has to fit into
 * 16 bits, skb->tc_classid. The lowest numbers are left out: as the minor number of a filter's class they would be
 * classes of our own qdiscs.
 */
#define PW_CHUNK_BITS 5
#define PW_CHUNK_SLOTS (1 << PW_CHUNK_BITS)
#define PW_CHUNKS (1 << (16 - PW_CHUNK_BITS))
#define PW_FIRST_SLOT 256

/* How a program learns its slot, in place of PW_CARRIER: a number of a slot, or one of these. */
#define PW_CARRIER_CLASSID 0 /* skb->tc_classid, which cls_bpf sets to the filter's own */
#define PW_CARRIER_HOST_EGRESS PW_DIR_EGRESS /* skb->ifindex at the host side, by pw_hosts */
#define PW_CARRIER_HOST_INGRESS PW_DIR_INGRESS
/* The loader puts the carrier into the lower 32 bits. As it is: the first slot, for tests. */
#define PW_CARRIER 0x7077736c00000100
