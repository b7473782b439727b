// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func counted(at time.Duration, c view.Counters, flow uint64) *view.Node {
	c.HeavyFlows = []view.Flow{{
		Protocol: 6, Source: netip.MustParseAddrPort("10.0.0.1:1"), Dest: netip.MustParseAddrPort("10.0.0.2:2"), Bytes: flow,
	}}
	return &view.Node{Time: now.Add(at), Pods: []view.Pod{{Pod: "ns/web", State: view.Limited, Limits: []view.Limit{{
		Interface: "eth0", Limit: limitOf(terms.Egress, 1000), Counters: c,
	}}}}}
}

func TestRates(t *testing.T) {
	tests := []struct {
		name        string
		before, now *view.Node
		want        view.PodRate
	}{
		{
			"two looks", counted(0, view.Counters{SentBytes: 100, LightBytes: 1000, HeavyBytes: 2000, DroppedBytes: 100, Drops: 1}, 500),
			counted(2*time.Second, view.Counters{SentBytes: 1100, LightBytes: 2000, HeavyBytes: 6000, DroppedBytes: 350, Drops: 5, WaitingBytes: 77}, 1500),
			view.PodRate{
				SentBitsPerSecond: 4000, LightBitsPerSecond: 4000, HeavyBitsPerSecond: 16_000, DroppedBitsPerSecond: 1000, DropsPerSecond: 2, Drops: 5, WaitingBytes: 77,
				FlowBitsPerSecond: []float64{4000},
			},
		},
		{
			"new since then", &view.Node{Time: now}, counted(2*time.Second, view.Counters{SentBytes: 500}, 1000),
			view.PodRate{SentBitsPerSecond: 2000, FlowBitsPerSecond: []float64{4000}},
		},
		{
			"attached again, its counters start from zero", counted(0, view.Counters{SentBytes: 9000, Drops: 90}, 900),
			counted(2*time.Second, view.Counters{SentBytes: 1000}, 100),
			view.PodRate{SentBitsPerSecond: 4000, FlowBitsPerSecond: []float64{400}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := view.Rates(tt.before, tt.now)
			if len(got) != 1 {
				t.Fatalf("%d rates, want one", len(got))
			}
			tt.want.Pod, tt.want.Interface, tt.want.Limit = "ns/web", "eth0", limitOf(terms.Egress, 1000)
			got[0].HeavyFlows = nil
			if diff := cmp.Diff(tt.want, got[0]); diff != "" {
				t.Errorf("Rates (-want +got):\n%s", diff)
			}
		})
	}
	if got := view.Rates(counted(0, view.Counters{}, 0), &view.Node{}); got == nil || len(got) != 0 {
		t.Errorf("Rates of a pod that went = %v, want an empty list, not null", got)
	}
}

// Programs that read the JSON go through lists of flows, also of a pod that has none.
func TestRatesOfPodsWithoutFlows(t *testing.T) {
	n := counted(0, view.Counters{}, 0)
	n.Pods[0].Limits[0].HeavyFlows = nil
	n.Pods = append(n.Pods, view.Pod{Pod: "ns/unlimited", State: view.NotLimited, Cause: "no memory for the queue"})
	b, err := json.Marshal(view.Rates(n, n))
	must.OK(t, err)
	if lists := strings.Count(string(b), `"heavyFlows":[],"flowBitsPerSecond":[]`); lists != 2 {
		t.Errorf("%d of 2 entries have empty lists of flows: %s", lists, b)
	}
}

func TestFlowName(t *testing.T) {
	for want, f := range map[string]view.Flow{
		"tcp 10.0.0.1:1 > [fd00::1]:443":  {Protocol: 6, Source: netip.MustParseAddrPort("10.0.0.1:1"), Dest: netip.MustParseAddrPort("[fd00::1]:443")},
		"protocol 47 10.0.0.1 > 10.0.0.2": {Protocol: 47, Source: netip.MustParseAddrPort("10.0.0.1:0"), Dest: netip.MustParseAddrPort("10.0.0.2:0")},
		"ethertype 0x88cc":                {EtherType: 0x88cc},
	} {
		if got := f.Name(); got != want {
			t.Errorf("Name() = %q, want %q", got, want)
		}
	}
}

// A look that took long between its counters and its end makes no rate higher.
func TestRatesGoByTheTimeOfTheCounters(t *testing.T) {
	at := func(read, end time.Duration, bytes uint64) *view.Node {
		p := limited("ns/web")
		p.Limits[0].SentBytes, p.Limits[0].Read = bytes, now.Add(read)
		n := node(p)
		n.Time = now.Add(end)
		return n
	}
	rates := view.Rates(at(0, time.Second, 0), at(2*time.Second, 2*time.Second, 2_500_000))
	if got := rates[0].SentBitsPerSecond; got != 10e6 {
		t.Errorf("%v bit/s in 2 s of a look that ended after 1 s, want 10M", got)
	}
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		sent  float64
		flows []float64
		want  string
	}{
		"below":    {5e6, []float64{5e6}, ""},
		"one flow": {9.9e6, []float64{9.6e6, 0.1e6}, "one flow offers most of the traffic"},
		"many":     {9.9e6, []float64{2e6, 2e6, 2e6, 2e6}, "the limit is too low"},
		"none":     {9.9e6, nil, "the limit is too low"},
	} {
		r := view.PodRate{Limit: limitOf(terms.Egress, 10e6), SentBitsPerSecond: tc.sent, FlowBitsPerSecond: tc.flows}
		if got := r.Verdict(); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
