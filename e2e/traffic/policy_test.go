// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// Traffic with exempt subnets is neither charged nor held.
func TestPrivilegedExemptSubnetsAreNotCharged(t *testing.T) {
	t.Parallel()
	const capacity = 10 * mbit
	r := newRig(t)
	other := must.Get(r.Lab.Client("monitor"))(t)
	pod := shaped(t, r, capacity, map[string]any{
		"unshapedSubnets": []string{other.V4.String() + "/32"},
	})
	meter := must.Get(wiremeter.Attach(other.Netns, other.IfName, wiremeter.Delivered))(t)
	t.Cleanup(func() { _ = meter.Close() })
	processors := must.Get(lab.WatchProcessors())(t)
	shapedLoad := must.Get(pod.Start(t.Context(), Egress, UDP, capacity, 2500*time.Millisecond))(t)
	from := wiremeter.Now()
	exempt := must.Get(r.Lab.StartFlood(t.Context(), lab.UDPFlood{
		From: &pod.Host, To: other, BitsPerSec: 4 * capacity, PayloadBytes: fullPayload,
		Duration: 2 * time.Second,
	}))(t)
	must.OK(t, must.Err(exempt.Wait(t.Context())))
	free := must.Get(meter.Read(from, wiremeter.Now()))(t)
	must.OK(t, waited(shapedLoad.Wait(t.Context())))
	held := must.Get(pod.Wire(Egress, shapedLoad.Started, wiremeter.Now()))(t)
	c := Case{Cap: capacity}
	allowed := c.Limit() + c.heldUp(processors.Stop())
	t.Logf("exempt %.2f Mbit/s, the rest: worst second %d bytes of %d, mean %.2f Mbit/s",
		free.BitsPerSec()/mbit, held.Worst(time.Second), allowed, held.BitsPerSec()/mbit)
	must.AtLeast(t, "bit/s of exempt traffic", 3.5*capacity, free.BitsPerSec())
	must.Within(t, "bytes in the worst second of what is not exempt", capacity/8*9/10, allowed, held.Worst(time.Second))
}

// In the policy elephants, light flows are not charged and heavy ones are
// held to the cap.
func TestPrivilegedElephantsPolicyChargesHeavyFlowsOnly(t *testing.T) {
	const (
		capacity = 10 * mbit
		flows    = 40
	)
	keys := map[string]any{"policy": "elephants"}
	t.Run("an elephant", func(t *testing.T) {
		beside(t, capacity)
		heavy := must.Get(newRig(t).Measure(t.Context(), Case{
			Cap: capacity, Direction: Egress, Load: TCP1, Duration: 4 * time.Second, Keys: keys,
		}))(t)
		t.Logf("worst second %.4f of the cap, used %.3f", heavy.WorstShare(), heavy.Used)
		// Until a flow is known to be heavy it is light: its first packets are
		// not charged.
		must.Within(t, "part of the cap that an elephant got", LeastUse, 1.01, heavy.Used)
	})
	t.Run("many flows below the threshold of 5 %", func(t *testing.T) {
		beside(t, capacity)
		pod := shaped(t, newRig(t), capacity, keys)
		sent := must.Get(pod.Spread(t.Context(), Egress, flows, capacity*4/100, 4*time.Second))(t)
		series := must.Get(pod.Wire(Egress, sent+settle, sent+settle+2*time.Second))(t)
		t.Logf("%d light flows together: %.2f of the cap", flows, series.BitsPerSec()/capacity)
		if series.BitsPerSec() < 1.5*capacity {
			t.Errorf("%d light flows got %.2f of the cap together, want what they offer, 1.6",
				flows, series.BitsPerSec()/capacity)
		}
	})
}

// set runs `podweir set` for a pod, as an operator on the node does.
func set(ctx context.Context, r *Rig, pod *Target, args ...string) error {
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin", "podweir"))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, bin, append([]string{"set", "--container", pod.ContainerID}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := r.Lab.Node().Do(cmd.Start); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("podweir set: %w: %s", err, out.String())
	}
	return nil
}

// A changed rate takes effect at once, under a flood of twice the new one: how long a
// TCP flow takes to find a higher rate is its own affair.
func TestPrivilegedSetTakesEffectUnderLoad(t *testing.T) {
	const before, after = 10 * mbit, 30 * mbit
	for _, d := range Directions {
		t.Run(d.String(), func(t *testing.T) {
			beside(t, after)
			r := newRig(t)
			pod := shaped(t, r, before, nil)
			processors := must.Get(lab.WatchProcessors())(t)
			// However long the command takes, the flood goes on.
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			o := must.Get(pod.Start(ctx, d, UDP, after, time.Minute))(t)
			testutil.Eventually(t, 3*time.Second, "the flood has half a second at the old rate", func() bool {
				now := wiremeter.Now()
				if now < o.Started+time.Second {
					return false
				}
				s, err := pod.Wire(d, now-500*time.Millisecond, now)
				return err == nil && s.BitsPerSec() > 0.95*before && s.BitsPerSec() < 1.1*before
			})
			must.OK(t, set(t.Context(), r, pod, "--"+d.String(), "30M"))
			changed := wiremeter.Now()
			testutil.Eventually(t, 10*time.Second, "a second is over", func() bool { return wiremeter.Now() > changed+time.Second })
			series := must.Get(pod.Wire(d, changed, changed+time.Second))(t)
			away := min(processors.Stop(), longestAway).Seconds()
			t.Logf("%.2f Mbit/s in the second after set", series.BitsPerSec()/mbit)
			must.Within(t, "part of the new rate in the second after set", 0.9-away, 1.02+away, series.BitsPerSec()/after)
		})
	}
}

// What waits while the rate changes is sent, in order.
func TestPrivilegedSetLosesNothingThatWaits(t *testing.T) {
	const capacity = 10 * mbit
	for _, d := range Directions {
		t.Run(d.String(), func(t *testing.T) {
			beside(t, capacity)
			r := newRig(t)
			pod := shaped(t, r, capacity, nil)
			changed := make(chan error, 1)
			go func() {
				err := pod.backlog(t.Context(), d)
				if err == nil {
					err = set(t.Context(), r, pod, "--"+d.String(), "9M")
				}
				changed <- err
			}()
			// The band gets some 15 ms deep and stays so while set runs.
			got := must.Get(pod.Sequence(t.Context(), d, []Phase{
				{capacity * 3 / 2, 50 * time.Millisecond},
				{capacity * 95 / 100, 300 * time.Millisecond},
				{capacity / 10, 200 * time.Millisecond},
			}))(t)
			must.OK(t, <-changed)
			t.Logf("%+v", *got)
			if got.Missing != 0 || got.Inversions != 0 {
				t.Errorf("%d of %d datagrams lost, %d out of order, want none", got.Missing, got.Sent, got.Inversions)
			}
		})
	}
}

// The queue on an ifb in the pod's namespace holds the cap, too.
func TestPrivilegedIngressByIFBHoldsTheCap(t *testing.T) {
	testutil.RequireQdisc(t, "ifb")
	const capacity = 20 * mbit
	for _, load := range []Load{TCP1, UDP} {
		t.Run(load.Name, func(t *testing.T) {
			beside(t, capacity)
			r := newRig(t)
			pod := shaped(t, r, capacity, map[string]any{"ingressPlace": "ifb"})
			var before *wiremeter.Meter
			if testutil.HaveTCX() { // else no meter is ahead of the redirect
				before = must.Get(wiremeter.Attach(pod.Netns, pod.IfName, wiremeter.Received))(t)
				t.Cleanup(func() { _ = before.Close() })
			}
			from := wiremeter.Now()
			got := must.Get(r.MeasureOn(t.Context(), pod, Case{
				Cap: capacity, Direction: Ingress, Load: load, Duration: 3 * time.Second,
			}))(t)
			t.Logf("worst second %.4f of the cap, used %.3f", got.WorstShare(), got.Used)
			must.OK(t, got.Err())
			if before == nil {
				return
			}
			arrived := must.Get(before.Read(from, wiremeter.Now()))(t)
			if sent := float64(arrived.Worst(time.Second)) * 8 / capacity; load.Bulk.Flows == 0 && sent < 1.5 {
				t.Errorf("%.2f of the cap arrived before the ifb, so nothing was tested", sent)
			}
		})
	}
}

// Whatever changes in how a running pod is limited, the limit holds meanwhile: three times the cap
// arrive, and a connection is kept beside them. Elephants are left out: a flow is free until it is found to be heavy.
func TestPrivilegedLimitChangesUnderAFlood(t *testing.T) {
	testutil.RequireQdisc(t, "ifb", "htb")
	const capacity = 20 * mbit
	type change = func(*shaping.Config, *shaping.Limit)
	place := func(p terms.Place) change { return func(_ *shaping.Config, l *shaping.Limit) { l.Place = p } }
	queue := func(q terms.Queue) change { return func(_ *shaping.Config, l *shaping.Limit) { l.Queue = q } }
	policy := func(p terms.Policy) change { return func(_ *shaping.Config, l *shaping.Limit) { l.Policy = p } }
	mode := func(m terms.Mode, q terms.Queue) change {
		return func(_ *shaping.Config, l *shaping.Limit) { l.Mode, l.Queue = m, q }
	}
	exempt := func(subnets ...netip.Prefix) change {
		return func(c *shaping.Config, _ *shaping.Limit) { c.Unshaped = subnets }
	}
	group := func(rate units.BitRate) change { return func(_ *shaping.Config, l *shaping.Limit) { l.Group = rate } }
	burst := func(b units.Bytes) change { return func(_ *shaping.Config, l *shaping.Limit) { l.Burst = b } }
	for name, changes := range map[string][]change{
		"place":                 {place(terms.PlaceIFB), place(terms.PlaceHost), place(terms.PlaceIFB)},
		"policing":              {queue(terms.QueueNone), queue(terms.QueueAuto), queue(terms.QueueNone), queue(terms.QueueAuto)},
		"policing and ifb":      {place(terms.PlaceIFB), queue(terms.QueueNone), queue(terms.QueueAuto)},
		"policing by TCX":       {mode(terms.ModeTCXPodSide, terms.QueueNone), mode(terms.ModeAuto, terms.QueueAuto), mode(terms.ModeTCXHostSide, terms.QueueAuto), mode(terms.ModeAuto, terms.QueueAuto)},
		"policy":                {policy(terms.PolicyFlat), policy(terms.PolicyStrict)},
		"exempt subnets":        {exempt(netip.MustParsePrefix("203.0.113.0/24")), exempt(netip.MustParsePrefix("198.51.100.0/24")), exempt()},
		"exempt subnets, group": {group(80 * capacity), exempt(netip.MustParsePrefix("203.0.113.0/24")), exempt(), group(0)},
		"burst":                 {burst(40_000), burst(capacity / 800)},
	} {
		for _, d := range Directions {
			if d == Egress && strings.Contains(name, "place") {
				continue
			}
			t.Run(name+"/"+d.String(), func(t *testing.T) {
				if name != "place" && name != "policing" && name != "policy" {
					mark.Nightly(t, "what it changes is made in the same ways")
				}
				beside(t, capacity)
				r := newRig(t)
				network := must.Get(r.Lab.Network("changes", lab.PodweirEntry(nil)))(t)
				made := must.Get(network.Pod(t.Context(), lab.PodOptions{Bandwidth: lab.RuntimeBandwidth(capacity), Namespace: "changes"}))(t)
				pod, node := r.metered(t, made), r.open(t)
				processors := must.Get(lab.WatchProcessors())(t)
				last := time.Duration(len(changes))*1100*time.Millisecond + 2*time.Second
				kept := must.Get(r.Lab.StartEcho(t.Context(), lab.EchoLoad{From: r.Client, To: &pod.Host, PerSecond: 100, Duration: last, Timeout: last}))(t)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				o := must.Get(pod.Start(ctx, d, UDP, 3*capacity, time.Minute))(t)
				until(t, time.Second)
				id := attach.ID{Network: network.Name, ContainerID: pod.ContainerID, IfName: pod.IfName}
				for i, change := range changes {
					changed := wiremeter.Now()
					must.OK(t, must.Err(node.Set(t.Context(), id, func(c *shaping.Config) error {
						l := c.Ingress
						if d == Egress {
							l = c.Egress
						}
						change(c, l)
						return nil
					})))
					took := wiremeter.Now() - changed
					until(t, 1100*time.Millisecond)
					series := must.Get(pod.Wire(d, changed-200*time.Millisecond, wiremeter.Now()))(t)
					t.Logf("change %d took %v: worst second %.4f of the cap, worst 100 ms %.3f, least in 20 ms %.3f", i, took,
						float64(series.Worst(time.Second))*8/capacity, float64(series.Worst(100*time.Millisecond))*80/capacity, float64(slices.Min(series.Windows(20*time.Millisecond)))*400/capacity)
				}
				series := must.Get(pod.Wire(d, o.Started+500*time.Millisecond, wiremeter.Now()))(t)
				answers := must.Get(kept.Wait(t.Context()))(t)
				worst := series.Worst(time.Second)
				away := min(processors.Stop(), longestAway)
				t.Logf("worst second %.4f of the cap; a response took %v at most", float64(worst)*8/capacity, answers.Quantile(1))
				// Each queue may be one packet late, and the new one begins with its burst. A policer lets its credit of a quarter
				// of a second and its horizon of 50 ms through at once, after as long without a flood.
				const packets = 2 * 1514
				most := capacity/8*(1.01+away.Seconds()) + packets
				if strings.Contains(name, "policing") {
					most += capacity / 8 * 0.3
				}
				must.AtMost(t, "bytes in a second", most, float64(worst))
				must.Be(t, "responses that the kept connection lost, "+answers.Reason, 0, answers.Failed)
			})
		}
	}
}

// Packets of BIG TCP, up to 500 kB, are held to the cap like others, and a cap
// that is less than one of them in its burst is used all the same.
func TestPrivilegedBigTCPStaysWithinTheCap(t *testing.T) {
	mark.Nightly(t, "few clusters have BIG TCP")
	r := newRig(t)
	for _, capacity := range []uint64{mbit, 10 * mbit, 5 * gbit} {
		pod := shaped(t, r, capacity, nil)
		must.OK(t, r.Lab.AllowBigTCP(r.Client, &r.Free.Host, &pod.Host))
		for _, d := range Directions {
			t.Run(fmt.Sprintf("%dM/%s", capacity/mbit, d), func(t *testing.T) {
				got := must.Get(r.MeasureOn(t.Context(), pod, Case{
					Cap: capacity, Direction: d, Load: TCPBig, Duration: 4 * time.Second,
				}))(t)
				t.Logf("worst second %.4f of the cap, used %.3f, %.0f bytes in a packet, unshaped %.0f Mbit/s",
					got.WorstShare(), got.Used, got.PacketBytes, got.Carried/mbit)
				if !got.Offered() {
					t.Log("not offered: the generator is slower than 1.2 times the cap")
					return
				}
				must.OK(t, got.Err())
				// At lower caps the queue segments what exceeds its burst. Without BIG
				// TCP a packet is 68,130 bytes at most: 45 full segments.
				if capacity > gbit && got.PacketBytes < 70_000 {
					t.Errorf("%.0f bytes in a packet, so BIG TCP was not tested", got.PacketBytes)
				}
			})
		}
	}
}

// Under elephants a call of a tenth of the cap is heavy, and waits with the bulk flows beside
// it. It has less than its share, and loses nothing for what they have too much.
func TestPrivilegedCallBesideElephants(t *testing.T) {
	const (
		capacity = 10 * mbit
		share    = 0.1
		packet   = 1200
		last     = 6 * time.Second
	)
	for _, d := range Directions {
		t.Run(d.String(), func(t *testing.T) {
			if d == Ingress {
				mark.Nightly(t, "it differs from other cases by one setting")
			}
			beside(t, capacity)
			r := newRig(t)
			pod := shaped(t, r, capacity, map[string]any{"policy": "elephants"})
			bulk := must.Get(pod.Start(t.Context(), d, TCP("TCP 8 cubic", 8, "cubic"), capacity, last+2*settle))(t)
			if err := wiremeter.Until(t.Context(), bulk.Started+settle); err != nil { // they are heavy then
				t.Fatal(err)
			}
			from, to := pod.Ends(d)
			call := must.Get(r.Lab.StartCalls(t.Context(), lab.Calls{
				From: from, To: to, Flows: 1, PacketBytes: packet, Duration: last,
				PerSecond: share * capacity / 8 / (packet + 14),
			}))(t)
			got := must.Get(call.Wait(t.Context()))(t)
			must.OK(t, waited(bulk.Wait(t.Context())))
			all := got.Failed + len(got.Samples)
			t.Logf("%d of %d packets of the call lost, median %v, p90 %v", got.Failed, all, got.Quantile(0.5), got.Quantile(0.9))
			must.AtLeast(t, "the median of the call, which is to wait with the bulk", 5*time.Millisecond, got.Quantile(0.5))
			// In a plain queue it loses 0.3 to 0.9 %.
			must.AtMost(t, "packets that the call lost", all/500, got.Failed)
		})
	}
}

// A pod whose limit is observed only has the full speed, and what exceeds the limit is
// counted. The same connection is held to the limit as soon as that is enforced, and is
// free again afterwards.
func TestPrivilegedObservedPodIsFreeUntilItIsLimited(t *testing.T) {
	const capacity = 10 * mbit
	r := newRig(t)
	pod := shaped(t, r, capacity, map[string]any{"enforce": "observe"})
	d := Egress
	// One connection for all of it, however long that takes: nothing is carried if it breaks.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	must.OK(t, must.Err(pod.Start(ctx, d, TCP1, capacity, time.Minute)))
	free := func(when string) {
		t.Helper()
		testutil.Eventually(t, 10*time.Second, when+" the pod has many times its limit", func() bool {
			now := wiremeter.Now()
			s, err := pod.Wire(d, now-500*time.Millisecond, now)
			return err == nil && s.BitsPerSec() > 10*capacity
		})
	}
	free("observed,")
	for _, name := range []string{"would-wait", "would-drop"} {
		if n := egressCounter(t, pod, name); n == 0 {
			t.Errorf("no packet is counted as %s", name)
		}
	}
	must.OK(t, set(t.Context(), r, pod, "--enforce", "limit"))
	limited := wiremeter.Now()
	testutil.Eventually(t, 10*time.Second, "a second and a half is over", func() bool { return wiremeter.Now() > limited+1500*time.Millisecond })
	series := must.Get(pod.Wire(d, limited+500*time.Millisecond, limited+1500*time.Millisecond))(t)
	t.Logf("%.2f Mbit/s with the limit", series.BitsPerSec()/mbit)
	must.Within(t, "part of the limit in the second that begins half a second after it is enforced", 0.5, 1.05, series.BitsPerSec()/capacity)
	must.OK(t, set(t.Context(), r, pod, "--clear"))
	free("observed again,")
}
