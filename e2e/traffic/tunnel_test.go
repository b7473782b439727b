// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Where nobody has counted the wire bytes of a packet, podweir counts all headers of its segments, also
// those inside a tunnel of the pod's own.
func TestPrivilegedTunnelIsCountedWhole(t *testing.T) {
	const (
		capacity = 10 * gbit // which the tunnel does not reach
		// headers of a segment in a VXLAN over IPv4: outer Ethernet, IPv4, UDP and VXLAN, inner Ethernet, IPv4
		// and TCP with time stamps.
		headers = 14 + 20 + 8 + 8 + 14 + 20 + 32
	)
	r := newRig(t)
	pod := shaped(t, r, capacity, map[string]any{"egressMode": "clsact-hostside"})
	from, to, err := r.Lab.Tunnel(&pod.Host, r.Client)
	must.OK(t, err)
	must.OK(t, from.Netns.Run("ip link set "+from.IfName+" gso_max_segs 64")) // large packets, which the kernel cuts behind podweir
	bytes := func() (sum uint64) {
		for _, c := range must.Get(r.Lab.Counters(Egress.String(), pod.Pod))(t) {
			sum += c.Bytes
		}
		return sum
	}
	before := bytes()
	_, packets := sentBy(t, pod.Netns, pod.IfName)
	run := must.Get(r.Lab.StartElephant(t.Context(), lab.Elephant{From: from, To: to, Duration: time.Second}))(t)
	bulk := must.Get(run.Wait(t.Context()))(t)
	counted := float64(bytes() - before)
	_, after := sentBy(t, pod.Netns, pod.IfName)
	payload, mss := 0.0, float64(bulk.MSS)
	for _, i := range bulk.Received {
		payload += i.Bytes
	}
	wire := payload / mss * (headers + mss)
	t.Logf("%.0f bytes of payload, in segments of %.0f and packets of %.0f: %.4f of the wire bytes counted", payload, mss, payload/float64(after-packets), counted/wire)
	must.AtLeast(t, "payload of a packet, so that something is tested", 4*mss, payload/float64(after-packets))
	must.AtLeast(t, "bytes counted of those on the wire", 0.995*wire, counted)
}

func wire(t *testing.T, pod *Target, from, to time.Duration) uint64 {
	t.Helper()
	return must.Get(pod.Wire(Egress, from, to))(t).Total()
}
