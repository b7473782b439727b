// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import "github.com/podweir/podweir/tools/perfrig/spec"

// Scales of columns.
const (
	mega = 1e-6
	kibi = 1.0 / 1024
)

var views = []view{
	{
		spec.Mixed, "Light flows beside bulk in both directions",
		"150 requests/s (mixed-few: 10) on fresh connections, 4 kB each, and 200 (50) requests/s of 64 B on a kept connection, to the pod and to an unlimited bystander at the same time. Milliseconds. " +
			"Wire is all that the pod sent and received meanwhile, Mbit/s.",
		[]column{
			{"fresh p50", "open_p50_ms", 1, 2},
			{"p95", "open_p95_ms", 1, 2},
			{"p99", "open_p99_ms", 1, 2},
			{"bystander p95", "open_bystander_p95_ms", 1, 2},
			{"p99", "open_bystander_p99_ms", 1, 2},
			{"errors", "open_errors_count", 1, 0},
			{"kept p50", "kept_p50_ms", 1, 2},
			{"p99", "kept_p99_ms", 1, 2},
			{"bystander p99", "kept_bystander_p99_ms", 1, 2},
			{"÷ bystander's", "kept_p99_over_bystander_ratio", 1, 2},
			{"errors", "kept_errors_count", 1, 0},
			{"bulk out", "egress_elephant_goodput_bits_per_second", mega, 2},
			{"in", "ingress_elephant_goodput_bits_per_second", mega, 2},
			{"wire out", "egress_open_wire_bits_per_second", mega, 2},
			{"in", "ingress_open_wire_bits_per_second", mega, 2},
		},
	},
	{
		spec.Mixed, "The same in a closed loop",
		"Ten clients (mixed-few: four) each, a fresh connection for every request of 4 kB: the shape that is published for such plugins. What a pod answers here is a matter of what it may send: see the wire beside it.",
		[]column{
			{"answers/s", "closed_requests_per_second", 1, 0},
			{"bystander's", "closed_bystander_requests_per_second", 1, 0},
			{"ratio", "closed_requests_ratio", 1, 3},
			{"p99", "closed_p99_ms", 1, 2},
			{"max", "closed_max_ms", 1, 0},
			{"bystander p99", "closed_bystander_p99_ms", 1, 2},
			{"errors", "closed_errors_count", 1, 0},
			{"wire out", "egress_closed_wire_bits_per_second", mega, 2},
			{"in", "ingress_closed_wire_bits_per_second", mega, 2},
			{"worst 1 s out", "egress_worst_second_share", 1, 4},
			{"in", "ingress_worst_second_share", 1, 4},
		},
	},
	{
		spec.Closed, "A closed loop far below the cap",
		"Ten clients each, a fresh connection for every request of 4 kB, to the pod and to an unlimited bystander at the same time, nothing else, or with bulk of 10 Mbit/s each way that keeps to its rate by itself (`closed-paced`): what the way of a packet itself costs. `pfifo` is a queue that limits nothing, on both ends of the veth.",
		[]column{
			{"answers/s", "closed_requests_per_second", 1, 0},
			{"bystander's", "closed_bystander_requests_per_second", 1, 0},
			{"ratio", "closed_requests_ratio", 1, 3},
			{"p99", "closed_p99_ms", 1, 2},
			{"bystander p99", "closed_bystander_p99_ms", 1, 2},
			{"errors", "closed_errors_count", 1, 0},
		},
	},
	{
		spec.Latency, "A kept connection beside one bulk flow",
		"200 requests/s of 64 B, alone and then beside bulk, there in turns with the unlimited bystander's. Milliseconds; bulk as Mbit/s on the wire.",
		[]column{
			{"idle p50", "idle_p50_ms", 1, 3},
			{"idle p99", "idle_p99_ms", 1, 2},
			{"p50", "kept_p50_ms", 1, 3},
			{"p99", "kept_p99_ms", 1, 2},
			{"max", "kept_max_ms", 1, 1},
			{"bystander p50", "kept_bystander_p50_ms", 1, 3},
			{"p99", "kept_bystander_p99_ms", 1, 2},
			{"p99 ÷ bystander's", "kept_p99_over_bystander_ratio", 1, 2},
			{"errors", "kept_errors_count", 1, 0},
			{"bulk", "DIR_wire_bits_per_second", mega, 1},
		},
	},
	{
		spec.Sweep, "One load as fast as it gets",
		"Goodput by iperf3's receiver; wire, worst second, excess (the smallest burst that explains every window) and use by the wire meter behind the shaper. Unshaped is what the unlimited pod carried in the same run.",
		[]column{
			{"goodput, Mbit/s", "DIR_goodput_bits_per_second", mega, 2},
			{"wire", "DIR_wire_bits_per_second", mega, 2},
			{"used", "DIR_used_share", 1, 4},
			{"worst 1 s", "DIR_worst_second_share", 1, 4},
			{"allowed", "DIR_allowed_second_share", 1, 4},
			{"excess, ms", "DIR_excess_ms", 1, 1},
			{"unshaped, Mbit/s", "carried_bits_per_second", mega, 0},
			{"sent again, first 3 s", "early_retransmits_count", 1, 0},
			{"after", "late_retransmits_count", 1, 0},
			{"after, %", "late_retransmits_percent", 1, 3},
		},
	},
	{
		spec.Ordinary, "A call beside other loads",
		"All in one direction: a call (UDP of a constant rate; its share of the cap is in the name, or 3 %), beside it bulk of so many flows, what the next table has, or a flood of twice the cap; or 200 calls that fill the cap. " +
			"From the fourth second on, for 7 s. Milliseconds for an answer to a datagram from when it was due; the bystander is the unlimited pod with one such call. Fairness is Jain's index of the bulk flows in a second, the median of the seconds. The round trip is that of bulk itself, by its senders' TCP, without the distance of a client that is far away. Marked and dropped are counted by podweir's programs, where bulk asks for marks; a packet of theirs may be of many segments.",
		[]column{
			{"call lost, %", "call_lost_percent", 1, 2},
			{"p50", "call_p50_ms", 1, 2},
			{"p90", "call_p90_ms", 1, 2},
			{"p99", "call_p99_ms", 1, 2},
			{"max", "call_max_ms", 1, 1},
			{"bystander p99", "call_bystander_p99_ms", 1, 2},
			{"sent again, %", "late_retransmits_percent", 1, 2},
			{"fairness", "bulk_fairness_share", 1, 3},
			{"bulk's round trip, median", "bulk_round_trip_p50_ms", 1, 1},
			{"marked", "bulk_marked_count", 1, 0},
			{"dropped", "bulk_dropped_count", 1, 0},
			{"flood, Mbit/s", "offered_bits_per_second", mega, 1},
			{"used", "DIR_used_share", 1, 4},
			{"worst 1 s", "DIR_worst_second_share", 1, 4},
		},
	},
	{
		spec.Ordinary, "What the loads beside the call got themselves",
		"Pages: 16 clients that each get 24 ms of the cap on a fresh connection, one after the other. Stream: one TCP connection that carries bulk in frames of 16 KiB and between them 200 answers/s of 64 B, as HTTP/2 does. " +
			"Tunnel: one TCP bulk flow and a second call inside one UDP flow, as with WireGuard; the call in it is told here. Video: a segment every 4 s, whose share of the cap over that time is in the name, beside so many bulk flows; two segments a sample, and one that has not come after 8 s is an error and counts as 8 s. Milliseconds from when each was due.",
		[]column{
			{"pages/s", "pages_requests_per_second", 1, 1},
			{"p50", "pages_p50_ms", 1, 0},
			{"p95", "pages_p95_ms", 1, 0},
			{"errors", "pages_errors_count", 1, 0},
			{"stream's answers p50", "stream_p50_ms", 1, 2},
			{"p95", "stream_p95_ms", 1, 2},
			{"p99", "stream_p99_ms", 1, 2},
			{"errors", "stream_errors_count", 1, 0},
			{"call in the tunnel lost, %", "inner_call_lost_percent", 1, 2},
			{"p50", "inner_call_p50_ms", 1, 2},
			{"p90", "inner_call_p90_ms", 1, 2},
			{"p99", "inner_call_p99_ms", 1, 2},
			{"segment, mean", "segment_mean_ms", 1, 0},
			{"max", "segment_max_ms", 1, 0},
			{"errors", "segment_errors_count", 1, 0},
		},
	},
	{
		spec.Attack, "Floods that are made to pass a cap",
		"Twice the cap is offered for 7 s: UDP that ignores its ECN marks (ect0), datagrams of three fragments, a new source port for every packet, frames of 60 B; or one heavy flow, and light ones of 3 % of the cap that share every cell of the sketch with the kept connection under a key that the attacker assumes (collide) or that the pod was given (collide-known, the control). " +
			"Kept connections of the pod and of the bystander meanwhile, 200 requests/s, milliseconds. Taken for heavy: the share of the time in which the pod's would have been, by its own sketch and holds.",
		[]column{
			{"offered, Mbit/s", "offered_bits_per_second", mega, 2},
			{"wire", "DIR_wire_bits_per_second", mega, 2},
			{"used", "DIR_used_share", 1, 4},
			{"worst 1 s", "DIR_worst_second_share", 1, 4},
			{"allowed", "DIR_allowed_second_share", 1, 4},
			{"excess, ms", "DIR_excess_ms", 1, 1},
			{"kept p50", "kept_p50_ms", 1, 3},
			{"p99", "kept_p99_ms", 1, 2},
			{"bystander p99", "kept_bystander_p99_ms", 1, 2},
			{"errors", "kept_errors_count", 1, 0},
			{"taken for heavy", "victim_heavy_share", 1, 3},
		},
	},
	{
		spec.Flows, "Light flows: taken for heavy ones, and what their packets cost",
		"30 % of the cap altogether, in turns by flows of so many remote addresses and ports; none of them is heavy. Live are those that sent within 4.3 s; where there is one packet for each flow, every packet is a flow's first. " +
			"Taken for heavy by podweir's own counters. ns by the kernel's account of podweir's programs for these packets (BPF_ENABLE_STATS), less that of an empty program behind them on the same device, which is told beside it.",
		[]column{
			{"flows", "flows_count", 1, 0},
			{"live", "flows_live_count", 1, 0},
			{"packets/s", "flows_sent_per_second", 1, 0},
			{"each flow, bit/s", "each_offered_bits_per_second", 1, 0},
			{"of the cap, %", "each_offered_share", 100, 6},
			{"taken for heavy, share of packets", "light_errors_share", 1, 6},
			{"ns a packet", "packet_cost_ns", 1, 1},
			{"empty program, ns", "statistics_cost_ns", 1, 1},
			{"wire, Mbit/s", "DIR_wire_bits_per_second", mega, 2},
		},
	},
	{
		spec.Others, "What podweir costs pods without a limit",
		"Traffic from one pod to another on a node where podweir is not in the conflist, is there and unused, or holds 20 other pods to 10M. Processor time is the whole machine's, load generators included.",
		[]column{
			{"goodput, Mbit/s", "goodput_bits_per_second", mega, 0},
			{"wire", "wire_bits_per_second", mega, 0},
			{"core-seconds per Gbit", "machine_cores_per_gbit", 1, 4},
			{"busy cores", "machine_busy_cores", 1, 3},
			{"kernel memory of the node's pods, KiB", "memory_node_bytes", kibi, 0},
		},
	},
	{
		spec.Add, "ADD",
		"Whole process, both directions, for pods that ptp has made; all of them stay. Last by first: medians of 20. Crowds come three times in a sample; all done is the median. The first of a boot finds no program in the kernel and no result of a probe: the median of seven, each with an empty bpffs. Milliseconds; resident set in KiB.",
		[]column{
			{"median", "add_p50_ms", 1, 2},
			{"max", "add_max_ms", 1, 1},
			{"last by first", "add_last_by_first_ratio", 1, 2},
			{"50 at once, median", "add_at_once_p50_ms", 1, 0},
			{"max", "add_at_once_max_ms", 1, 0},
			{"all done after", "add_at_once_whole_ms", 1, 0},
			{"100 at once, median", "add_at_once_100_p50_ms", 1, 0},
			{"all done after", "add_at_once_100_whole_ms", 1, 0},
			{"first of a boot", "add_first_p50_ms", 1, 1},
			{"peak RSS", "add_rss_p50_bytes", kibi, 0},
		},
	},
	{
		spec.Memory, "Kernel memory per pod",
		"KiB for each pod, both directions, by difference over the workload's number of pods. Slab, vmalloc and per-CPU do not overlap and are the total; memlock is the kernel's own account of BPF objects, a part of them.",
		[]column{
			{"total", "memory_total_bytes", kibi, 1},
			{"slab", "memory_slab_bytes", kibi, 1},
			{"vmalloc", "memory_vmalloc_bytes", kibi, 1},
			{"per-CPU", "memory_percpu_bytes", kibi, 1},
			{"memlock", "memory_memlock_bytes", kibi, 1},
		},
	},
	podsView, turnsView,
	agentView,
}
