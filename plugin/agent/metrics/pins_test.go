// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/metrics"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// node is a namespace that plays the host.
type node struct {
	*testutil.NetNS
	paths engine.Paths
}

func newNode(tb testing.TB) *node {
	tb.Helper()
	return &node{
		NetNS: testutil.NewNetNS(tb),
		paths: engine.Paths{Pins: filepath.Join(testutil.BPFFS(tb), "podweir"), Run: tb.TempDir()},
	}
}

// shape makes a pod and gives it 10 Mbit/s in both directions.
func (n *node) shape(tb testing.TB, index int) *testutil.NetNS {
	tb.Helper()
	pod := testutil.NewNetNS(tb)
	gateway, addr := fmt.Sprintf("10.77.%d.1", index), fmt.Sprintf("10.77.%d.2", index)
	testutil.VethPair(tb,
		testutil.End{NetNS: pod, Name: "eth0", CIDRs: []string{addr + "/24"}},
		testutil.End{NetNS: n.NetNS, Name: fmt.Sprintf("veth%d", index), CIDRs: []string{gateway + "/24"}})
	limit := func() *shaping.Limit {
		return &shaping.Limit{
			Rate: 10e6, Policy: terms.PolicyStrict, Queue: terms.QueueAuto, Mode: terms.ModeAuto,
			Place: terms.PlaceAuto, Horizon: shaping.DefaultHorizon,
			LightShare: shaping.DefaultLightShare, HeavyThreshold: shaping.DefaultHeavyThreshold,
		}
	}
	n.do(tb, func(node *engine.Node) error {
		_, err := node.Ensure(tb.Context(), &attach.Want{
			ID:        attach.ID{Network: "net", ContainerID: fmt.Sprintf("container-%d", index), IfName: "eth0"},
			NetNSPath: pod.Path(), Names: []string{"eth0"}, Pod: fmt.Sprintf("default/pod-%d", index),
			Config: &shaping.Config{Egress: limit(), Ingress: limit()},
		})
		return err
	})
	return pod
}

func (n *node) do(tb testing.TB, f func(*engine.Node) error) {
	tb.Helper()
	err := n.Do(func() error {
		node, err := engine.Open(n.paths)
		if err != nil {
			return err
		}
		defer node.Close()
		return f(node)
	})
	must.OK(tb, err)
}

// inside reads the pins from the namespace that plays the host.
type inside struct {
	*metrics.Pins
	ns *testutil.NetNS
}

func (i inside) Read() (all []metrics.Interface, failed int, err error) {
	err = i.ns.Do(func() error {
		all, failed, err = i.Pins.Read()
		return err
	})
	return all, failed, err
}

func (n *node) reader() inside { return inside{metrics.NewPins(n.paths), n.NetNS} }

func mustRead(tb testing.TB, r metrics.Reader) []metrics.Interface {
	tb.Helper()
	all, failed, err := r.Read()
	if err != nil || failed != 0 {
		tb.Fatalf("Read() = %d failed, %v, want none", failed, err)
	}
	return all
}

func TestPrivilegedPinsCount(t *testing.T) {
	n := newNode(t)
	pod := n.shape(t, 1)
	r := n.reader()
	pod.Run(t, "ping", "-c", "5", "-i", "0.01", "10.77.1.1")
	all := mustRead(t, r)
	if len(all) != 1 || all[0].Namespace != "default" || all[0].Pod != "pod-1" || len(all[0].Directions) != 2 {
		t.Fatalf("Read() = %+v, want one pod with two directions", all)
	}
	for _, d := range all[0].Directions {
		light := uint64(0)
		for _, c := range d.Counters {
			if c.Disposition == "light" {
				light = c.Packets
			}
		}
		if d.Rate != 10e6 || light < 5 || d.Qdisc == nil || d.Qdisc.Packets < 5 {
			t.Errorf("%s = %+v, want 10 Mbit/s and the packets of five pings", d.Direction, d)
		}
	}
	// A change of the limit is told at the next scrape.
	n.do(t, func(node *engine.Node) error {
		_, err := node.Set(t.Context(), attach.ID{Network: "net", ContainerID: "container-1", IfName: "eth0"},
			func(c *shaping.Config) error { c.Egress.Rate = 20e6; return nil })
		return err
	})
	rate := func() uint64 {
		i := slices.IndexFunc(mustRead(t, r)[0].Directions, func(d status.Direction) bool { return d.Direction.Is == terms.Egress })
		return uint64(mustRead(t, r)[0].Directions[i].Rate)
	}
	if got := rate(); got != 20e6 {
		t.Errorf("rate after set = %d, want 20 Mbit/s", got)
	}
}

// A pod that is gone has no series and is kept alive by nothing, although its
// pins are still there.
func TestPrivilegedPinsForgetThePodsThatAreGone(t *testing.T) {
	n := newNode(t)
	n.shape(t, 1)
	var path string
	t.Run("pod", func(t *testing.T) {
		path = n.shape(t, 2).Path()
		if got := len(mustRead(t, n.reader())); got != 2 {
			t.Fatalf("%d pods, want two", got)
		}
	})
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil {
		t.Fatalf("namespace %s is still there", path)
	}
	r := n.reader()
	all := mustRead(t, r)
	if len(all) != 1 || all[0].Pod != "pod-1" {
		t.Errorf("Read() = %+v, want pod-1 alone", all)
	}
	text := scrape(t, metrics.New(metrics.Config{Log: slog.New(slog.DiscardHandler), Pods: r}).Handler())
	if strings.Contains(text, "pod-2") || !strings.Contains(text, "podweir_shaped_pods 1\n") {
		t.Errorf("scrape = %v, want pod-1 alone", own(text))
	}
}
