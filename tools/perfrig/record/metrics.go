// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package record

import "strings"

// Better is which way a metric improves.
type Better int

// The ways.
const (
	Neither Better = iota
	Lower
	Higher
)

// Metric describes a number of a sample.
type Metric struct {
	// Name is its key, Unit what follows the number.
	Name, Unit string
	Better     Better
	// Ratio says that both of its terms are of one run, so that another
	// machine, or a busy one, changes it little. Regressions are judged by
	// ratios only.
	Ratio bool
	Text  string
}

// suffixes give the unit of a metric from the end of its name; a longer one
// comes before what it ends with.
var suffixes = []struct {
	suffix, unit string
	ratio        bool
}{
	{"_bits_per_second", "bit/s", false},
	{"_per_second", "/s", false},
	{"_cores_per_gbit", "cores per Gbit/s", false},
	{"_cores", "cores", false},
	{"_share", "", true},
	{"_ratio", "", true},
	{"_percent", "%", false},
	{"_bytes", "B", false},
	{"_ms", "ms", false},
	{"_ns", "ns", false},
	{"_count", "", false},
}

// quantities say which way a metric improves, by what stands in its name; the
// first that does counts.
var quantities = []struct {
	part   string
	better Better
	text   string
}{
	{"over_bystander", Lower, "p99 of the pod's connection relative to the unlimited pod's, measured in turns"},
	{"over_idle", Lower, "p99 beside load by p99 without"},
	{"worst_second", Lower, "the most wire bytes of any second, as a share of the cap"},
	{"allowed_second", Neither, "what the promise allows any second, as a share of the cap"},
	{"excess", Lower, "the smallest burst that explains every window, in time of the cap"},
	{"used", Higher, "wire bytes after the start, as a share of the cap"},
	{"carried", Neither, "what the unlimited pod carried of the load in the same run, on the wire"},
	{"offered", Neither, "what the sender offered, on the wire"},
	{"wire", Neither, "on the wire, at the receiver, headers included"},
	{"goodput", Higher, "payload, by the receiver's report"},
	{"retransmits", Lower, "segments sent again"},
	{"lost", Lower, "datagrams without an answer, of those sent"},
	{"fairness", Higher, "Jain's index of the bulk flows in a second, the median of the seconds"},
	{"agent", Lower, "resident set of podweir's agent"},
	{"rss", Lower, "largest resident set"},
	{"add", Lower, "time of ADD, whole process"},
	{"del", Lower, "time of DEL, whole process"},
	{"round_trip", Lower, "round trip of the bulk flows as their senders' TCP has it, over the flows and the half seconds: what their own packets wait is in it"},
	{"marked", Neither, "packets that podweir marked instead of dropping"},
	{"dropped", Lower, "packets that podweir's programs dropped"},
	{"p50", Lower, "median, from the time a request was due"},
	{"p90", Lower, "90th percentile, from the time a request was due"},
	{"p95", Lower, "95th percentile"},
	{"p99", Lower, "99th percentile, from the time a request was due"},
	{"mean", Lower, "mean, from the time a request was due"},
	{"max", Lower, "longest"},
	{"light_errors", Lower, "packets of light flows that podweir took for heavy, by its counters"},
	{"errors", Lower, "requests without a complete answer"},
	{"requests", Higher, "complete answers"},
	{"cores", Lower, "processor time of the whole machine"},
	// What the new pods' processes and vmalloc areas needed beyond what was there;
	// the kernel does not give back its own when an area goes, so a node that
	// once had as many pods shows none. Before Linux 6.16 only processes' count.
	{"pagetables", Neither, "page tables of processes and of the kernel, for each pod"},
	{"memory", Lower, "kernel memory"},
	{"instructions", Lower, "instructions that the verifier went through"},
	{"path", Neither, "share of the packets that took the path that was to be measured"},
	{"statistics", Neither, "what the kernel's statistics measure of a program that does nothing; it is not in the other costs"},
	{"sender", Lower, "time of a sender that does all of the way to the socket, for each packet"},
	{"statistics_cost", Neither, "what the kernel's account of a program's time says of an empty one"},
	{"cost", Lower, "cost"},
	{"victim_heavy", Lower, "looks at which the kept connection counted as heavy"},
	{"live", Neither, "flows of whose last packet the sketch still holds a sixteenth"},
	{"sent", Neither, "packets that the sender sent"},
	{"flows", Neither, "different flows"},
}

// Describe tells what a metric is; ok is false of a name that breaks the rules.
// A name ends with its unit and says which quantity it is, so that a number
// without either cannot be recorded.
func Describe(name string) (m Metric, ok bool) {
	m.Name = name
	for _, s := range suffixes {
		if strings.HasSuffix(name, s.suffix) {
			m.Unit, m.Ratio, ok = s.unit, s.ratio, true
			break
		}
	}
	if !ok {
		return m, false
	}
	words := "_" + name + "_"
	for _, q := range quantities {
		if strings.Contains(words, "_"+q.part+"_") || strings.Contains(words, "_"+q.part+".") {
			m.Better, m.Text = q.better, q.text
			return m, true
		}
	}
	return m, false
}
