/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a program may answer.
 *
 * On a hook that others can use: next or drop. TC_ACT_OK (0) is TCX_PASS there and would switch off
 * every program and filter behind ours, network policy included.
 */
#pragma once

#include <linux/pkt_cls.h>

#include "base.h"
#include "counters.h"

#define PW_NEXT TC_ACT_UNSPEC /* TCX_NEXT */
#define PW_DROP TC_ACT_SHOT /* TCX_DROP */
#define PW_REDIRECT TC_ACT_REDIRECT
/* On our own qdisc: "tc_classid is the class". */
#define PW_OWN_CLASS TC_ACT_OK

static __always_inline int verdict_next(enum pw_disposition disposition, __u32 bytes)
{
	counters_add(disposition, bytes);
	return PW_NEXT;
}

static __always_inline int verdict_drop(enum pw_disposition disposition, __u32 bytes)
{
	counters_add(disposition, bytes);
	return PW_DROP;
}
