// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package result is what the demo measured: its JSON, and the tables that are
// made of it.
package result

// Report is what a run measured, demo.json. All rates are in bits per second, times in
// milliseconds, memory in KiB.
type Report struct {
	Machine    Machine `json:"machine"`
	Started    string  `json:"started"`
	Seconds    float64 `json:"seconds"`
	Congestion string  `json:"congestionControl"`
	Load       Load    `json:"load"`
	Rows       []Row   `json:"rows"`
}

// Machine is what a number depends on.
type Machine struct {
	Kernel    string `json:"kernel"`
	CPU       string `json:"cpu"`
	CPUs      int    `json:"cpus"`
	Go        string `json:"go"`
	Git       string `json:"git"`
	GitDirty  bool   `json:"gitDirty"`
	MemoryKiB int64  `json:"memoryKiB"`
	// Load is the load average of the last minute before the start.
	Load float64 `json:"loadAverage"`
}

// Load is what was offered in every row.
type Load struct {
	WarmUpSeconds       float64 `json:"warmUpSeconds"`
	OpenLoopSeconds     float64 `json:"openLoopSeconds"`
	ClosedLoopSeconds   float64 `json:"closedLoopSeconds"`
	OpenLoopPerSecond   float64 `json:"openLoopPerSecond"`
	KeptPerSecond       float64 `json:"keptPerSecond"`
	ClosedLoopClients   int     `json:"closedLoopClients"`
	ResponseBytes       int     `json:"responseBytes"`
	RequestTimeoutMilli float64 `json:"requestTimeoutMilli"`
}

// Row is one scenario at one cap.
type Row struct {
	Case       string `json:"case"`
	Title      string `json:"title"`
	CapBitRate uint64 `json:"capBitRate"` // 0 = no cap
	// IngressOnly says that egress had neither a limit nor bulk: the kernel lacks
	// what the limit needs.
	IngressOnly bool    `json:"ingressOnly,omitempty"`
	Egress      Flow    `json:"egress"`
	Ingress     Flow    `json:"ingress"`
	Open        Latency `json:"openLoop"`
	Closed      Latency `json:"closedLoop"`
	Kept        Latency `json:"kept"`
	// The unshaped bystander pod, at the same time.
	BystanderOpen Latency `json:"bystanderOpenLoop"`
	BystanderKept Latency `json:"bystanderKept"`
	// Memory is what the chained plugin costs the kernel per pod; nil in case
	// (a), which has none.
	Memory *Memory `json:"memoryPerPod,omitempty"`
}

// Flow is one direction of a pod.
type Flow struct {
	// ElephantBitRate is the receiver's payload rate beside the open loop.
	ElephantBitRate float64 `json:"elephantBitRate"`
	// ElephantSpread are minimum, median and maximum of half seconds.
	ElephantSpread [3]float64 `json:"elephantSpread"`
	// WireBitRate is everything the receiver's device got beside the open
	// loop, WireBitRateClosedLoop beside the closed loop.
	WireBitRate           float64 `json:"wireBitRate"`
	WireBitRateClosedLoop float64 `json:"wireBitRateClosedLoop"`
	// WireSpread are minimum, median and maximum of all one-second windows
	// after the warm-up, with both loops.
	WireSpread [3]float64 `json:"wireSpread"`
	// WorstSecondFromStart is the maximum with the warm-up: what a burst lets
	// through at first is in it.
	WorstSecondFromStart float64 `json:"worstSecondFromStart"`
	// ExcessBytes is the smallest burst b with bytes ≤ cap × t + b in every
	// window after the warm-up.
	ExcessBytes float64 `json:"excessBytes"`
	// Retransmits are segments sent again after the warm-up, of Segments.
	Retransmits        float64 `json:"retransmits"`
	RetransmitsPer10s  float64 `json:"retransmitsPer10s"`
	RetransmitsPercent float64 `json:"retransmitsPercent"`
	RetransmitsWarmUp  float64 `json:"retransmitsWarmUp"`
}

// Latency is one latency load.
type Latency struct {
	Requests  int            `json:"requests"`
	Errors    map[string]int `json:"errors,omitempty"`
	PerSecond float64        `json:"perSecond"`
	P50       float64        `json:"p50"`
	P90       float64        `json:"p90"`
	P99       float64        `json:"p99"`
	Max       float64        `json:"max"`
}

// Memory is that of a chained plugin per pod, in KiB.
type Memory struct {
	Total   float64 `json:"totalKiB"`
	Slab    float64 `json:"slabKiB"`
	Vmalloc float64 `json:"vmallocKiB"`
	PerCPU  float64 `json:"perCPUKiB"`
	Memlock float64 `json:"bpfMemlockKiB"`
	Pods    int     `json:"pods"`
}

// Plausible says whether the difference can be the plugin's: it is not less
// than what the kernel itself accounts to BPF objects, and not negative.
func (m *Memory) Plausible() bool { return m.Total >= m.Memlock && m.Total >= 0 }
