// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Each half routes what the other has given out, and nothing of its own.
func TestHalvesHaveDifferentNetworks(t *testing.T) {
	contains := func(h Half, p netip.Prefix) bool {
		return slices.ContainsFunc(h.networks(), func(n netip.Prefix) bool {
			return n.Contains(p.Addr()) && n.Bits() <= p.Bits()
		})
	}
	for i := 1; i <= maxSubnets; i++ {
		want := Near
		if i >= halfSubnets {
			want = Far
		}
		for _, p := range []netip.Prefix{subnet{i}.v4(), subnet{i}.v6()} {
			if !contains(want, p) || contains(1-want, p) {
				t.Errorf("network %d, %v, is not in half %d alone", i, p, want)
			}
		}
	}
}

func TestJoinComesFirst(t *testing.T) {
	l := &Lab{subnets: 1}
	if err := l.Join("lo", Near); err == nil {
		t.Error("Join of a lab that has given out networks = nil error, want an error")
	}
}

// Two labs of one machine, with a wire that is a pair of devices in a namespace
// of the test's.
func TestPrivilegedJoinedLabsReachEachOther(t *testing.T) {
	near, far := newTestLab(t), newTestLab(t)
	// The thread leaves with its namespace: it is never unlocked.
	joined := make(chan error)
	go func() {
		runtime.LockOSThread()
		joined <- joinByVeth(near, far)
	}()
	if err := <-joined; err != nil {
		t.Fatal(err)
	}
	pod, _ := mustPod(t, near)
	client, err := far.Client("client")
	if err != nil {
		t.Fatal(err)
	}
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		load := HTTPLoad{ResponseBytes: 6000, PerSecond: 50, Duration: 500 * time.Millisecond, Timeout: time.Second, IPv6: v6}
		load.To = &pod.Host
		server, err := near.ServeHTTP(t.Context(), load)
		if err != nil {
			t.Fatal(err)
		}
		load.From = client
		asks, err := far.AskHTTP(t.Context(), load, server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		got, err := asks.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Samples) != 25 || got.Failed() != 0 {
			t.Errorf("%s: %d samples, errors %v, want 25 and none", name, len(got.Samples), got.Errors)
		}
	}
}

func joinByVeth(near, far *Lab) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "near"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far"}); err != nil {
		return err
	}
	return errors.Join(near.Join("near", Near), far.Join("far", Far))
}

// Both ends in one lab: what crosses between two is an address.
func TestPrivilegedEndsOfLoad(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	const length = 500 * time.Millisecond
	http := HTTPLoad{ResponseBytes: 6000, PerSecond: 100, Duration: length, Timeout: time.Second, To: &pod.Host}
	echo := EchoLoad{PerSecond: 100, Duration: length, Timeout: time.Second, To: &pod.Host}
	web, err := l.ServeHTTP(t.Context(), http)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := l.ServeEcho(t.Context(), echo)
	if err != nil {
		t.Fatal(err)
	}
	http.From, http.To = client, nil
	echo.From, echo.To = client, nil
	open, err := l.AskHTTP(t.Context(), http, web.Addr)
	if err != nil {
		t.Fatal(err)
	}
	asks, err := l.AskEcho(t.Context(), echo, kept.Addr)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*Asker{"open loop": open, "kept connection": asks} {
		got, err := a.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Samples) != 50 || got.Failed() != 0 {
			t.Errorf("%s: %d samples, errors %v, want 50 and none", name, len(got.Samples), got.Errors)
		}
	}
	for _, s := range []*Server{web, kept} {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestPrivilegedEndsOfBulk(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	receiver, err := l.ReceiveBulk(t.Context(), Elephant{To: client})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := l.SendBulk(t.Context(), Elephant{From: &pod.Host, Duration: time.Minute}, receiver.Addr)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(1200 * time.Millisecond) // the transfer is to last for a while
	sent, mss, err := sender.Stop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	received, _, err := receiver.Stop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(sent) < 2 || len(received) < 2 || mss < 500 {
		t.Errorf("bulk of 1.2 s: %d intervals sent, %d received, segments of %d bytes", len(sent), len(received), mss)
	}
	if got := Between(received, 0, 1).Bytes; got == 0 {
		t.Error("nothing was received")
	}
}

// A sender that is waited for has the whole of its time.
func TestPrivilegedSenderIsWaitedFor(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	receiver, err := l.ReceiveBulk(t.Context(), Elephant{To: client})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := l.SendBulk(t.Context(), Elephant{From: &pod.Host, Duration: time.Second}, receiver.Addr)
	if err != nil {
		t.Fatal(err)
	}
	sent, _, err := sender.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := Between(sent, 0, 1.5).Seconds; got < 0.9 {
		t.Errorf("it sent for %v s, want 1 s", got)
	}
	if _, _, err := receiver.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A device comes back from a closed lab a moment after Close has returned.
func TestPrivilegedDeviceIsAwaited(t *testing.T) {
	ns, err := newTestLab(t).newNamespace("waits")
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() {
		made <- exec.Command("ip", "-n", ns.Name(), "link", "add", "late", "type", "veth", "peer", "name", "other").Run()
	})
	err = ns.Do(func() error {
		link, err := awaitDevice("late")
		if err == nil && link.Attrs().Name != "late" {
			t.Errorf("got device %s, want late", link.Attrs().Name)
		}
		return err
	})
	if err := errors.Join(err, <-made); err != nil {
		t.Error(err)
	}
}
