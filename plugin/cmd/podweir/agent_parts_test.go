// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/terms"
)

// The Event of a limit that has been reached for ten minutes goes to the pod that has most of it.
func TestEventOfANamespaceAtItsLimit(t *testing.T) {
	t.Parallel()
	g := &terms.Group{
		Namespace: "batch", Direction: terms.Name(terms.Egress), Limit: 200e6, Largest: "batch/etl-3", LargestPart: 0.706,
		AtLimitSince: time.Date(2026, 11, 29, 14, 2, 11, 0, time.UTC),
	}
	team, first, most := kube.Pod{Namespace: "team", Name: "etl-3"}, kube.Pod{Namespace: "batch", Name: "etl-1"}, kube.Pod{Namespace: "batch", Name: "etl-3"}
	for _, tc := range []struct {
		pods []kube.Pod
		want string
	}{
		{[]kube.Pod{team, first, most}, "batch/etl-3"}, {[]kube.Pod{most, first}, "batch/etl-3"}, {[]kube.Pod{team, first}, "batch/etl-1"},
	} {
		pod, event := atLimit(tc.pods, g)
		if pod == nil || pod.Namespace+"/"+pod.Name != tc.want {
			t.Errorf("of %v the Event is of %v, want of %s", tc.pods, pod, tc.want)
		}
		const want = "egress of namespace batch is at its limit of 200 Mbit/s on this node since 2026-11-29T14:02:11Z; batch/etl-3 has 71 % of it"
		if event.Reason != "NamespaceAtLimit" || event.Message != want {
			t.Errorf("%+v, want %q", event, want)
		}
	}
	if pod, _ := atLimit([]kube.Pod{team}, g); pod != nil {
		t.Errorf("the Event is of %v, which is in another namespace", pod)
	}
}
