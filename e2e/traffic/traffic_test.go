// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"fmt"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.Timed, "it judges rates, or waits of a packet, by the clock")

func TestMain(m *testing.M) {
	if lab.WorkerMain() {
		return
	}
	m.Run()
}

// mostBeside is the highest limit, in bits per second, of tests that run beside others:
// together they leave the processors idle for half of the time.
const mostBeside = 100 * mbit

// beside has a test or a case run beside others if its limit allows for it.
func beside(t *testing.T, bitsPerSec uint64) {
	t.Helper()
	if bitsPerSec <= mostBeside {
		t.Parallel()
	}
}

// waited is the error of [Offer.Wait].
func waited(_ *lab.Bulk, _ *lab.FloodResult, err error) error { return err }

// newRig makes a rig that goes with the test.
func newRig(t *testing.T) *Rig {
	t.Helper()
	testutil.RequireRoot(t)
	r := must.Get(NewRig(t.Context(), lab.Options{}))(t)
	r.SparesOthers = true
	t.Cleanup(func() { must.OK(t, r.Close()) })
	return r
}

func shaped(t *testing.T, r *Rig, bitsPerSec uint64, keys map[string]any) *Target {
	t.Helper()
	pod := must.Get(r.Shaped(t.Context(), bitsPerSec, keys))(t)
	t.Cleanup(func() { must.OK(t, pod.closeMeters()) })
	return pod
}

// metered is a pod of the rig's whose packets are counted, until the test ends.
func (r *Rig) metered(t *testing.T, pod *lab.Pod) *Target {
	t.Helper()
	target := &Target{Pod: pod, rig: r}
	must.OK(t, target.freshMeters())
	t.Cleanup(func() { _ = target.closeMeters() })
	return target
}

// open opens podweir's state on the rig's node, until the test ends.
func (r *Rig) open(t *testing.T) (node *engine.Node) {
	t.Helper()
	must.OK(t, r.Lab.Node().Do(func() (err error) {
		node, err = engine.Open(engine.DefaultPaths)
		return err
	}))
	t.Cleanup(node.Close)
	return node
}

// The judgement itself: a measurement that breaks a promise is an error.
func TestCapResultErr(t *testing.T) {
	cases := map[string]struct {
		cap, worst uint64
		load       Load
		used       float64
		carried    float64
		lost       float64
		ok         bool
	}{
		"exactly 1.01":                     {cap: 10 * mbit, worst: 1_262_500, load: TCP1, used: 1, carried: gbit, ok: true},
		"one byte more":                    {cap: 10 * mbit, worst: 1_262_501, load: TCP1, used: 1, carried: gbit},
		"1M takes a packet of 9,100":       {cap: mbit, worst: 125_000 + 1_250 + 9_100, load: TCP1, used: 1, carried: gbit, ok: true},
		"1M takes no more":                 {cap: mbit, worst: 125_000 + 1_250 + 9_101, load: TCP1, used: 1, carried: gbit},
		"a processor away for 2 %":         {cap: 10 * mbit, worst: 1_000_000, load: TCP1, used: 0.955, lost: 0.02, carried: gbit, ok: true},
		"a flow that loses more":           {cap: 10 * mbit, worst: 1_000_000, load: TCP1, used: 0.945, lost: 0.02, carried: gbit},
		"a flow that starves":              {cap: 10 * mbit, worst: 1_000_000, load: TCP1, used: 0.96, carried: gbit},
		"a machine that cannot carry more": {cap: 10 * mbit, worst: 1_000_000, load: TCP1, used: 0.96, carried: 14 * mbit, ok: true},
		"a flood may use less":             {cap: 10 * mbit, worst: 1_000_000, load: UDP, used: 0.96, carried: gbit, ok: true},
		"but not lose it":                  {cap: 10 * mbit, worst: 1_000_000, load: UDP, used: 0.8, carried: gbit},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &CapResult{
				Case:  Case{Cap: c.cap, Load: c.load, Duration: time.Second},
				Worst: c.worst, Used: c.used, Carried: c.carried, Lost: c.lost,
			}
			must.Be(t, fmt.Sprint("no error: ", r.Err()), c.ok, r.Err() == nil)
		})
	}
}
