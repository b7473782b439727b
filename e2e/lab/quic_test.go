// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedQUICHasTheCap: such a flow has what the reference plugin lets through, loses something, and is reported
// until it is stopped.
func TestPrivilegedQUICHasTheCap(t *testing.T) {
	mark.Timed(t, "it judges rates or waits")
	l := newTestLab(t)
	network := must.Get(l.Network("net", BandwidthEntry()))(t)
	pod := must.Get(network.Pod(t.Context(), PodOptions{Bandwidth: &Bandwidth{EgressRate: 20e6, EgressBurst: 64_000 * 8}}))(t)
	client := must.Get(l.Client("client"))(t)
	run := must.Get(l.StartElephant(t.Context(), Elephant{
		From: &pod.Host, To: client, Flows: 2, CongestionControl: QUIC, Duration: time.Minute,
	}))(t)
	const last = 4 * time.Second
	must.OK(t, wiremeter.Until(t.Context(), run.Started+last))
	bulk := must.Get(run.Stop(t.Context()))(t)
	w := Between(bulk.Received, 1, last.Seconds())
	if rate := w.BitsPerSec(); rate < 15e6 || rate > 20e6 || w.Retransmits == 0 || w.Retransmits > w.Bytes/quicPayload/4 {
		t.Errorf("%.1f Mbit/s, %.0f of %.0f packets lost; want almost 20, and some but few", rate/1e6, w.Retransmits, w.Bytes/quicPayload)
	}
}
