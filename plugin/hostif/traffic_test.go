// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"errors"
	"net"
	"testing"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/testutil"
)

// Both ends tell the same, from the host's namespace: what the pod sent and what the
// host received, bytes with their Ethernet headers.
func TestPrivilegedTraffic(t *testing.T) {
	testutil.RequireRoot(t)
	host, pod := testutil.NewNetNS(t), testutil.NewNetNS(t)
	inPod, onHost := testutil.VethPair(t,
		testutil.End{NetNS: pod, Name: "eth0", CIDRs: []string{"10.78.0.2/24"}},
		testutil.End{NetNS: host, Name: "veth0", CIDRs: []string{"10.78.0.1/24"}})
	pod.Run(t, "ip", "neigh", "replace", "10.78.0.1", "lladdr", onHost.HardwareAddr.String(), "dev", "eth0")
	h, err := hostif.NewHandle(host.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	const payload = 1000
	packets := uint64(0)
	before, err := h.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Do(func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp4", "10.78.0.1:9")
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		for range 1000 {
			if _, err := conn.Write(make([]byte, payload)); err == nil { // nobody listens, which is told instead
				packets++
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	after, err := h.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	least := packets * (payload + 8 + 20 + 14)
	got := after[onHost.Index].ReceivedBytes - before[onHost.Index].ReceivedBytes
	if got < least || got > least+10_000 {
		t.Errorf("the host's end received %d bytes, want %d and little else", got, least)
	}
	id := host.Interface(t, "veth0").PeerNetNSID
	in, index, err := h.TrafficIn(id, "eth0")
	if err != nil || index != inPod.Index {
		t.Fatalf("TrafficIn = ifindex %d, %v, want %d", index, err, inPod.Index)
	}
	if in.SentBytes < after[onHost.Index].ReceivedBytes {
		t.Errorf("the pod's end sent %d bytes, the host's received %d", in.SentBytes, after[onHost.Index].ReceivedBytes)
	}
	if _, _, err := h.TrafficIn(id, "eth9"); !errors.Is(err, hostif.ErrNoDevice) {
		t.Errorf("a device that is not there: %v, want ErrNoDevice", err)
	}
	if _, _, err := h.TrafficIn(4711, "eth0"); !errors.Is(err, hostif.ErrNoDevice) {
		t.Errorf("a namespace that is not there: %v, want ErrNoDevice", err)
	}
}
