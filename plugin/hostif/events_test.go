// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/testutil"
)

// next waits for an event that names the device.
func next(t *testing.T, e *hostif.DeviceEvents, index int, after string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for {
		changed, err := e.Next(ctx)
		if err != nil {
			t.Fatalf("no event of ifindex %d after %q: %v", index, after, err)
		}
		if slices.Contains(changed, index) {
			return
		}
	}
}

func TestPrivilegedDeviceEvents(t *testing.T) {
	testutil.RequireRoot(t)
	ns := testutil.NewNetNS(t)
	dev, _ := testutil.VethPair(t,
		testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: testutil.NewNetNS(t), Name: "veth1"})
	e, err := hostif.WatchDevices(ns.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for _, c := range [][]string{
		{"ip", "link", "set", "eth0", "mtu", "1400"},
		{"tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7:", "tbf", "rate", "1mbit", "burst", "10k", "limit", "20k"},
		{"tc", "qdisc", "del", "dev", "eth0", "root"},
		{"ip", "link", "del", "eth0"},
	} {
		ns.Run(t, c[0], c[1:]...)
		next(t, e, dev.Index, c[0]+" "+c[1])
		drain(t, e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next of an ended context = %v, want its error", err)
	}
}

// drain reads until nothing comes any more.
func drain(t *testing.T, e *hostif.DeviceEvents) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := e.Next(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}
