// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/rivals"
	"github.com/podweir/podweir/plugin/units"
)

// tunedBurstBits is the burst of the bandwidth plugin as somebody who knows tc
// would set it: 64 kB, a few segments; with the plugin's own 25 ms of latency.
const tunedBurstBits = 64_000 * 8

// scenario is what is chained behind ptp.
type scenario struct {
	key, title string
	chain      []lab.Entry
	// bandwidth is the runtimeConfig for a cap; nil if no plugin gets one.
	bandwidth func(bitsPerSec uint64) *lab.Bandwidth
	// double, if not nil, limits the pod once it is there, instead of a plugin. It
	// says whether egress has no limit on this kernel.
	double func(node *lab.Netns, pod *lab.Pod, bitsPerSec uint64) (ingressOnly bool, err error)
}

// shaped says whether the scenario depends on the cap.
func (s *scenario) shaped() bool { return s.bandwidth != nil || s.double != nil }

// cilium limits a pod as Cilium's bandwidth manager does, egress only where the
// kernel has fq.
func cilium(node *lab.Netns, pod *lab.Pod, bitsPerSec uint64) (ingressOnly bool, err error) {
	if err := rivals.CiliumIngress(node, pod.HostIfName, bitsPerSec); err != nil {
		return false, err
	}
	err = rivals.CiliumEgress(pod.Netns, pod.IfName, bitsPerSec)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	return false, err
}

// calico limits a pod as Calico's QoS controls do.
func calico(node *lab.Netns, pod *lab.Pod, bitsPerSec uint64) (ingressOnly bool, err error) {
	return false, rivals.Calico(node, pod.HostIfName, bitsPerSec)
}

func scenarios() []scenario {
	return []scenario{
		{key: "a", title: "no plugin"},
		{
			key: "b", title: "bandwidth plugin",
			chain: []lab.Entry{lab.BandwidthEntry()}, bandwidth: lab.RuntimeBandwidth,
		},
		{
			key: "b2", title: "bandwidth, tuned",
			chain: []lab.Entry{lab.BandwidthEntry()},
			bandwidth: func(bitsPerSec uint64) *lab.Bandwidth {
				return &lab.Bandwidth{
					IngressRate: bitsPerSec, IngressBurst: tunedBurstBits,
					EgressRate: bitsPerSec, EgressBurst: tunedBurstBits,
				}
			},
		},
		{
			key: "c", title: "podweir strict",
			chain:     []lab.Entry{lab.PodweirEntry(map[string]any{"policy": "strict"})},
			bandwidth: lab.RuntimeBandwidth,
		},
		{
			key: "d", title: "podweir elephants",
			chain:     []lab.Entry{lab.PodweirEntry(map[string]any{"policy": "elephants"})},
			bandwidth: lab.RuntimeBandwidth,
		},
		{key: "e", title: "Calico's QoS", double: calico},
		{key: "f", title: "Cilium's manager", double: cilium},
	}
}

// pick keeps the scenarios whose keys are listed, in their own order.
func pick(all []scenario, keys string) ([]scenario, error) {
	wanted := map[string]bool{}
	for k := range strings.SplitSeq(keys, ",") {
		wanted[strings.TrimSpace(k)] = true
	}
	var out []scenario
	for _, s := range all {
		if wanted[s.key] {
			out = append(out, s)
			delete(wanted, s.key)
		}
	}
	for k := range wanted {
		return nil, fmt.Errorf("no case %q: the cases are a, b, b2, c, d, e and f", k)
	}
	return out, nil
}

// parseCaps reads rates such as "10M,1G", in bits per second.
func parseCaps(s string) ([]uint64, error) {
	var out []uint64
	for text := range strings.SplitSeq(s, ",") {
		n, err := units.ParseSize(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("cap: %w", err)
		}
		out = append(out, n)
	}
	return out, nil
}
