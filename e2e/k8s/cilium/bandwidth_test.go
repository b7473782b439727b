// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// stockConflist is before Cilium's own: the reference plugin behind cilium-cni,
// as a user without podweir would chain it. Cilium must not be exclusive.
const (
	stockConflist = "/etc/cni/net.d/00-stock.conflist"
	stock         = `{"cniVersion": "1.0.0", "name": "cilium", "plugins": [
  {"type": "cilium-cni", "enable-debug": false, "log-file": "/var/run/cilium/cilium-cni.log"},
  {"type": "bandwidth", "capabilities": {"bandwidth": true}}
]}
`
)

// stockLoad is how long the load runs.
const stockLoad = 4 * time.Second

// TestPrivilegedStockBandwidth shows what the reference plugin does behind
// cilium-cni: a pod with an egress limit does not start, and with BPF host
// routing an ingress limit limits nothing. Two lines of a table in README say so.
func TestPrivilegedStockBandwidth(t *testing.T) {
	for _, s := range []cilium.Settings{cilium.Legacy, cilium.BPF} {
		s.Exclusive = false
		t.Run(s.HostRouting(), func(t *testing.T) { stockBehind(t, s) })
	}
}

func stockBehind(t *testing.T, s cilium.Settings) {
	t.Helper()
	bring(t, s)
	n := suite.Members[0]
	must.OK(t, n.WriteFile(stockConflist, stock))
	t.Cleanup(func() { must.OK(t, must.Err(n.Exec(context.Background(), "rm", stockConflist))) })
	peer := pod(t, "peer", "peer", 1, nil)
	refused(t)

	p := pod(t, "ingress", "ingress", 0, map[string]string{workload.IngressKey: "100M"})
	before := tbfPackets(t, p)
	r := must.Get(workload.Load{Pod: p, Peer: peer}.For(t.Context(), stockLoad))(t)
	queued, bits := tbfPackets(t, p)-before, r.In.BitsPerSec()
	t.Logf("%s host routing: %d packets in the queue of the ingress limit of 100M, %.1f Mbit/s received", s.HostRouting(), queued, bits/1e6)
	// A packet of segmentation offload has 64 kB at most: fewer packets than that
	// takes have not carried the traffic.
	bypassed := float64(queued) < r.In.BitsPerSec()*stockLoad.Seconds()/8/64e3
	must.Be(t, "the queue is bypassed", s.HostRouting() == "BPF", bypassed)
	if bypassed && bits < 150_000_000 {
		t.Errorf("ingress %.1f Mbit/s, want more than the limit of 100M that nothing enforces", bits/1e6)
	}
}

// refused makes a pod with an egress limit, which does not start.
func refused(t *testing.T) {
	t.Helper()
	const name = "egress"
	suite.Create(t, workload.Manifest(name, suite.Members[0], map[string]string{workload.EgressKey: "100M"}))
	clustertest.Eventually(t, 60*time.Second, "Event", func(ctx context.Context) error {
		var list struct {
			Items []struct{ Reason, Message string }
		}
		if err := suite.Get(ctx, &list, "events", "--field-selector", "involvedObject.name="+name); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "FailedCreatePodSandBox" && strings.Contains(e.Message, "create ingress qdisc: file exists") {
				t.Logf("a pod with an egress limit: %s", e.Message)
				return nil
			}
		}
		return fmt.Errorf("none of %+v has the reason", list.Items)
	})
}

// tbfPackets is how many packets have left the one token bucket on the node of
// a pod.
func tbfPackets(t *testing.T, p *workload.Pod) int {
	t.Helper()
	out, err := p.Node.Exec(t.Context(), "tc", "-s", "-j", "qdisc", "show")
	var qdiscs []struct {
		Kind    string
		Packets int
	}
	if err = errors.Join(err, json.Unmarshal([]byte(out), &qdiscs)); err != nil {
		t.Fatal(err)
	}
	for _, q := range qdiscs {
		if q.Kind == "tbf" {
			return q.Packets
		}
	}
	t.Fatalf("no token bucket in %s", out)
	return 0
}
