// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/agent/divide"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// groupLoad is what a group of eight pods has to carry.
type groupLoad struct {
	name       string
	limit, own uint64
	// most is the part of the limit that a second may have, 0 if that is only measured.
	most float64
	put  func(t *testing.T, g *groupOf, d Direction)
	// last are pods whose fairness at the end is told, and is at least so much.
	last  int
	least float64
}

// comeAndGo is one pod with bulk throughout, and seven that join and leave twice.
func comeAndGo(t *testing.T, g *groupOf, d Direction) {
	t.Helper()
	g.bulk(t, d, g.pods[:1])
	for range 2 {
		until(t, time.Second)
		others := g.bulk(t, d, g.pods[1:])
		until(t, 1500*time.Millisecond)
		for _, run := range others {
			_, _ = run.Stop(t.Context())
		}
	}
	until(t, time.Second)
}

// bursts are datagrams of the limit from every pod in turns with silence, or all the time of three tenths of it.
func bursts(on, off time.Duration) func(*testing.T, *groupOf, Direction) {
	return func(t *testing.T, g *groupOf, d Direction) {
		t.Helper()
		each := g.limit
		if off == 0 {
			each = g.limit * 3 / 10
		}
		for _, pod := range g.pods {
			from, to := pod.Ends(d)
			must.OK(t, must.Err(g.rig.Lab.StartFlood(t.Context(), lab.UDPFlood{From: from, To: to, BitsPerSec: each, PayloadBytes: 1400, On: on, Off: off, Duration: 4 * time.Second})))
		}
		until(t, 4*time.Second)
	}
}

func oneBesideFifty(t *testing.T, g *groupOf, d Direction) {
	t.Helper()
	for i, flows := range []int{1, 50} {
		from, to := g.pods[i].Ends(d)
		must.OK(t, must.Err(g.rig.Lab.StartElephant(t.Context(), lab.Elephant{From: from, To: to, Flows: flows, Duration: time.Minute})))
	}
	until(t, 4*time.Second)
}

// awhile has nobody divide for ten seconds in which five more pods begin.
func awhile(t *testing.T, g *groupOf, d Direction) {
	t.Helper()
	g.bulk(t, d, g.pods[:3])
	until(t, 2*time.Second)
	g.stop()
	g.done.Wait()
	g.bulk(t, d, g.pods[3:])
	until(t, 10*time.Second)
	g.divide(t)
	until(t, 2*time.Second)
}

// What pods of a group have together stays within their limit under each load.
func TestPrivilegedGroupUnderLoads(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	mark.Nightly(t, "it takes minutes")
	for _, l := range []groupLoad{
		{name: "come and go", limit: groupLimit, own: groupLimit, most: 1.01, put: comeAndGo},
		{name: "100M each", limit: groupLimit, own: groupLimit / 2, most: 1.01, put: comeAndGo},
		{name: "datagrams", limit: groupLimit, own: groupLimit, most: 1.01, put: bursts(0, 0), last: groupPods},
		{name: "bursts of 15 of 60 ms", limit: groupLimit, own: groupLimit, most: 1.01, put: bursts(15*time.Millisecond, 45*time.Millisecond)},
		{name: "bursts of 40 of 240 ms", limit: groupLimit, own: groupLimit, most: 1.01, put: bursts(40*time.Millisecond, 200*time.Millisecond)},
		{name: "1 flow beside 50", limit: groupLimit, own: groupLimit, most: 1.01, put: oneBesideFifty, last: 2, least: 0.95},
		{name: "nobody divides for 10 s", limit: groupLimit, own: groupLimit, most: 1.02, put: awhile},
		{name: "10M", limit: 10 * mbit, own: 10 * mbit, put: comeAndGo},
		{name: "50M", limit: 50 * mbit, own: 50 * mbit, put: comeAndGo},
		{name: "1G", limit: gbit, own: gbit, put: comeAndGo},
	} {
		for _, d := range Directions {
			t.Run(l.name+"/"+d.String(), func(t *testing.T) { l.run(t, d) })
		}
	}
}

func (l *groupLoad) run(t *testing.T, d Direction) {
	t.Helper()
	g := newGroup(t, newRig(t), l.limit, l.own)
	g.divide(t)
	processors := must.Get(lab.WatchProcessors())(t)
	dropped, start := g.dropped(t, d), wiremeter.Now()
	requests := g.request(t, d, 4*time.Second)
	l.put(t, g, d)
	end := wiremeter.Now()
	pod, free := requests()
	g.within(t, d, start, end, l.most, processors)
	t.Logf("the last second %.4f; %d packets dropped behind the queues; requests: p99 %v, without a limit %v",
		g.sum(t, d, end-time.Second+200*time.Millisecond, end).BitsPerSec()/float64(l.limit), g.dropped(t, d)-dropped,
		pod.Quantile(0.99), free.Quantile(0.99))
	if l.last == 0 {
		return
	}
	jain := (&groupOf{pods: g.pods[:l.last]}).fairness(t, d, end-2*time.Second, end)
	t.Logf("fairness between %d pods %.3f", l.last, jain)
	must.AtLeast(t, "fairness between pods", l.least, jain)
}

// An agent that divides the limits of 20 namespaces among 110 pods takes little of a processor, and holds each limit:
// one pod of each sends without an end, another one in bursts.
func TestPrivilegedGroupsOfManyPods(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	mark.Nightly(t, "110 pods")
	// 20 groups of 1G would be more than the machine carries: no use of them is asked for.
	for text, limit := range map[string]units.BitRate{"10M": 10 * mbit, "50M": 50 * mbit, "1G": gbit} {
		t.Run(text, func(t *testing.T) { manyGroups(t, text, limit) })
	}
}

func manyGroups(t *testing.T, text string, limit units.BitRate) {
	t.Helper()
	const groups, pods = 20, 110
	r := newRig(t)
	network := must.Get(r.Lab.Network("many", lab.PodweirEntry(nil)))(t)
	run := mailbox.Dir(engine.DefaultPaths.Run)
	for i := range groups {
		name := fmt.Sprint(r.Lab.Name(), i)
		must.OK(t, run.RecordNamespace(name, netconf.Namespace{
			netconf.AnnotationDomain + "node-ingress-rate": text, netconf.AnnotationDomain + "node-egress-rate": text,
		}))
		t.Cleanup(func() { _ = run.RecordNamespace(name, nil) })
	}
	var all []*Target
	for i := range pods {
		pod := must.Get(network.Pod(t.Context(), lab.PodOptions{Namespace: fmt.Sprint(r.Lab.Name(), i%groups)}))(t)
		all = append(all, &Target{Pod: pod, rig: r})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	defer func() { cancel(); done.Wait() }()
	thread := make(chan int, 1)
	done.Go(func() {
		runtime.LockOSThread()
		_ = r.Lab.Node().Do(func() error {
			thread <- unix.Gettid()
			return divide.Run(ctx, engine.DefaultPaths, slog.New(slog.DiscardHandler), nil)
		})
	})
	divides := <-thread
	for _, pod := range all[:2*groups] {
		must.OK(t, pod.freshMeters())
		t.Cleanup(func() { _ = pod.closeMeters() })
	}
	took := func(what string, last time.Duration) (loaded, end time.Duration) {
		loaded, before := wiremeter.Now(), timeOf(t, divides)
		until(t, last)
		end = wiremeter.Now()
		t.Logf("%s: who divides took %.2f %% of a processor", what, 100*(timeOf(t, divides)-before).Seconds()/(end-loaded).Seconds())
		return loaded, end
	}
	until(t, 2*time.Second)
	took("idle", 4*time.Second)
	for _, pod := range all[:groups] {
		from, to := pod.Ends(Ingress)
		must.OK(t, must.Err(r.Lab.StartElephant(t.Context(), lab.Elephant{From: from, To: to, Duration: time.Minute})))
	}
	until(t, 2*time.Second)
	took("one pod of each sends", 4*time.Second)
	for _, pod := range all[groups : 2*groups] {
		from, to := pod.Ends(Ingress)
		must.OK(t, must.Err(r.Lab.StartFlood(t.Context(), lab.UDPFlood{From: from, To: to, BitsPerSec: uint64(limit), PayloadBytes: 1400, On: 40 * time.Millisecond, Off: 200 * time.Millisecond, Duration: 15 * time.Second})))
	}
	until(t, 2*time.Second)
	processors := must.Get(lab.WatchProcessors())(t)
	loaded, end := took("another one of each sends in bursts", 8*time.Second)
	limits := must.Get(run.Groups())(t)
	away := min(processors.Stop(), longestAway).Seconds()
	var used, second, tenth, told float64
	for i := range groups {
		wire := (&groupOf{pods: []*Target{all[i], all[i+groups]}}).sum(t, Ingress, loaded, end)
		used += wire.BitsPerSec() / groups / float64(limit)
		second = max(second, float64(wire.Worst(time.Second))*8/float64(limit))
		tenth = max(tenth, float64(wire.Worst(time.Second/10))*80/float64(limit))
	}
	for _, group := range limits {
		if group.Direction.String() == Ingress.String() {
			told += float64(group.Sent) / groups / float64(limit)
		}
	}
	t.Logf("%d limits of %v, %.3f of them used into the pods, %.3f by the agent's own account; worst second %.4f, worst tenth %.4f",
		len(limits), limit, used, told, second, tenth)
	if len(limits) != 2*groups || told > 1.2 {
		t.Errorf("%d limits, of which %.3f is used by the agent's own account; want %d, and at most all of it", len(limits), told, 2*groups)
	}
	if limit == gbit {
		return
	}
	// Five processes for each limit: a machine that is busy elsewhere does not offer all of it.
	must.AtLeast(t, "part of the limits that is used", 0.7, used)
	must.AtMost(t, "part of a limit in a second", 1.02+away, second)
}

// timeOf is the processor time of a thread of this process.
func timeOf(t *testing.T, thread int) (d time.Duration) {
	t.Helper()
	b := must.Get(os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", thread)))(t)
	must.OK(t, must.Err(fmt.Sscan(string(b), &d)))
	return d
}
