/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a program knows of the packet at hand. It is kept in the scratch space, and means nothing between packets. */
#pragma once

#include "abi.h"

/* What the table of flows has of the packet's flow, or whom the flow would displace. */
struct pw_known {
	__u16 place; /* in pw_state.flows */
	__u8 found;
	__u8 held; /* 1: the flow itself, not who is displaced */
	__u8 rank; /* of who has the place */
	__u8 age; /* of the flow, with this packet */
	__u8 pad[2];
	__u32 at; /* time of the word */
};

/* So many units of 2^shift bytes. */
struct pw_size {
	__u32 units;
	__u32 shift;
};

/* What the parser read of the packet at hand. */
struct pw_packet {
	struct pw_flow flow;
	__u16 l3; /* offset of the IP header */
	__u16 l4; /* offset of the transport header */
	__u16 headers; /* bytes from the first header to the end of what is known of them */
	__u8 tos; /* traffic class; its low two bits are the ECN field */
	__u8 hop_limit;
	__u8 family; /* 4, 6, or 0 if it is not IP */
	__u8 light;
	__u8 control; /* ARP or neighbour discovery */
	/* From here on nothing is cleared. */
	__u8 class; /* enum pw_class */
	__u8 big; /* has big_est */
	__u8 excess; /* enum pw_excess */
	__u8 counts; /* the sketch is charged */
	__u32 est; /* of the flow */
	__u32 claim; /* what the flow is taken for where the light-only meter is asked */
	__u32 big_est; /* from this estimate on a flow is held; a quarter above it, it becomes heavy */
	__u32 fair; /* the fair share as an estimate */
	__u32 flood; /* PW_FAIR_FLOODED */
	__u32 hold; /* for how long the flow would be held now, in units of the table of flows */
	__u64 level; /* of the total meter when the packet came, 1/64 ns */
	__u64 wait; /* how long heavy packets shall wait, 1/64 ns */
	__u64 extra; /* how much of that is because of losses */
	__u64 cut; /* pw_state.fair_cut */
	__u64 backlog; /* bytes in the queue of the device */
	__u64 listed; /* bytes of the flow in the list of heavy flows before this packet, 0 if it is not there */
	struct pw_known known;
	struct pw_size size; /* on the wire */
	__u64 id; /* the flow hash */
	struct pw_subnet subnet; /* the key of the remote address among the exempt ones */
};
