// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// probeReport runs the doctor with a probe while the pod gets packets.
func (c *cli) probeReport(t *testing.T) map[string]doctor.Outcome {
	t.Helper()
	end := c.traffic(t)
	// A node that podweir knows nothing else of: its root directory is empty.
	out, _ := c.do(t, "doctor", "--probe", "--probe-time", "1s", "--root", t.TempDir(), "-o", "json")
	end()
	var rep doctor.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	byCode := map[string]doctor.Outcome{}
	for _, o := range rep.Checks {
		byCode[o.Code] = o
	}
	return byCode
}

// traffic sends the pod a packet each few milliseconds until end is called.
func (c *cli) traffic(t *testing.T) (end func()) {
	t.Helper()
	var conn net.Conn
	err := c.node.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(t.Context(), "udp", "10.78.0.2:9")
		return err
	})
	must.OK(t, err)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				// Nobody listens: a refusal comes back at some time.
				_, _ = conn.Write(make([]byte, 100))
			}
		}
	})
	return func() {
		close(stop)
		group.Wait()
		_ = conn.Close()
	}
}

// A foreign filter that ends the chain in front of the redirect to the ifb takes
// every packet past the queue: CHECK cannot see it, the probe does and names it.
func TestPrivilegedDoctorProbe(t *testing.T) {
	testutil.RequireQdisc(t, "ifb", "clsact")
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--ingress", "10M", "--with", "ingressPlace=ifb")...)
	got := c.probeReport(t)
	for code, want := range map[string]doctor.Status{"PW506": doctor.OK, "PW701": doctor.OK, "PW702": doctor.OK, "PW703": doctor.OK} {
		if o := got[code]; o.Status != want {
			t.Errorf("%s = %s: %s, want %s", code, o.Status, o.Seen, want)
		}
	}
	if !strings.Contains(got["PW701"].Seen, "1 of 1 limits had traffic") {
		t.Errorf("PW701: %s", got["PW701"].Seen)
	}
	c.foreignFilter(t, "hostile")
	got = c.probeReport(t)
	if o := got["PW701"]; o.Status != doctor.Fail || !strings.Contains(o.Seen, "hostile") || !strings.Contains(o.Seen, " ingress: ") {
		t.Errorf("PW701 = %s: %s, want a failure that names the filter", o.Status, o.Seen)
	}
	if o := got["PW701"]; len(o.Also) != 1 || o.Also[0].Code != "PW506" || !strings.Contains(o.Also[0].Seen, "hostile") {
		t.Errorf("PW701 comes with %v, want PW506, which names the filter", o.Also)
	}
	// Without a probe its instructions say it.
	out, err := c.do(t, "status", "-o", "wide")
	if err == nil || !strings.Contains(out, "NOT LIMITED") || !strings.Contains(out, "hostile (program ") || !strings.Contains(out, "ends the chain for every packet") {
		t.Errorf("status does not say that a program ends the chain: %v\n%s", err, out)
	}
}

// TestPrivilegedDoctorUplink: the veth by which a node in a container reaches
// others is no pod's device, with or without Cilium's programs on it.
func TestPrivilegedDoctorUplink(t *testing.T) {
	testutil.RequireQdisc(t, "clsact")
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M")...)
	testutil.VethPair(t,
		testutil.End{NetNS: c.node, Name: "eth0", CIDRs: []string{"172.30.9.2/24"}},
		testutil.End{NetNS: testutil.NewNetNS(t), Name: "world"})
	c.node.Run(t, "ip", "route", "add", "default", "via", "172.30.9.1", "dev", "eth0")
	c.node.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
	filterOn(t, c.node, "eth0", "cil_from_netdev-eth0")
	// A pod without a limit.
	testutil.VethPair(t, testutil.End{NetNS: c.node, Name: "lxc1"}, testutil.End{NetNS: testutil.NewNetNS(t), Name: "eth0"})

	out, _ := c.do(t, "doctor", "--root", t.TempDir(), "-o", "json")
	var rep doctor.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, o := range rep.Checks {
		switch o.Code {
		case "PW502":
			if o.Status != doctor.OK || o.Seen != "none on 2 devices" {
				t.Errorf("PW502 = %s: %s, want none on the two pods' devices", o.Status, o.Seen)
			}
		case "PW604":
			if o.Status != doctor.OK || !strings.HasPrefix(o.Seen, "2 pods") {
				t.Errorf("PW604 = %s: %s, want 2 pods", o.Status, o.Seen)
			}
		}
	}
}

// foreignFilter puts a filter that ends the chain with 0 on the ingress hook of
// the pod's own device, ahead of everybody.
func (c *cli) foreignFilter(t *testing.T, name string) {
	t.Helper()
	filterOn(t, c.pod, "eth0", name)
}

func filterOn(t *testing.T, ns *testutil.NetNS, device, name string) {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.FD()))
	must.OK(t, err)
	defer h.Close()
	err = h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ns.Interface(t, device).Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: testutil.VerdictProgram(t, name, 0).FD, Name: name, DirectAction: true,
	})
	must.OK(t, err)
}

func TestDoctorProbeTime(t *testing.T) {
	for _, bad := range []string{"10ms", "2m"} {
		_, err := runPodweir(t, "doctor", "--probe", "--probe-time", bad, "--root", t.TempDir())
		if err == nil || !strings.Contains(err.Error(), "--probe-time") {
			t.Errorf("--probe-time %s = %v, want an error that names it", bad, err)
		}
	}
}
