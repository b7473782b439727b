// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/agent/divide"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

const (
	groupLimit = 200 * mbit
	groupPods  = 8
)

// groupOf are pods of one namespace that have a limit together.
type groupOf struct {
	rig *Rig
	// limit is in bits per second.
	limit uint64
	pods  []*Target
	node  *engine.Node
	loop  *divide.Loop
	ids   []attach.ID

	stop context.CancelFunc
	done sync.WaitGroup
	// spent is what the loop took of a processor, ticks how often it came by.
	spent time.Duration
	ticks int
}

// newGroup makes the pods, each with a limit of its own, too; if limit is 0 with that alone.
func newGroup(t *testing.T, r *Rig, limit, own uint64) *groupOf {
	t.Helper()
	network := must.Get(r.Lab.Network("group", lab.PodweirEntry(nil)))(t)
	g := &groupOf{rig: r, limit: limit, node: r.open(t), loop: divide.New(slog.New(slog.DiscardHandler))}
	for range groupPods {
		pod := must.Get(network.Pod(t.Context(), lab.PodOptions{Bandwidth: lab.RuntimeBandwidth(own), Namespace: "group"}))(t)
		g.pods = append(g.pods, r.metered(t, pod))
		if limit != 0 {
			g.join(t, attach.ID{Network: network.Name, ContainerID: pod.ContainerID, IfName: pod.IfName})
		}
	}
	return g
}

func (g *groupOf) join(t *testing.T, id attach.ID) {
	t.Helper()
	g.ids = append(g.ids, id)
	must.OK(t, must.Err(g.node.Set(t.Context(), id, func(c *shaping.Config) error {
		c.Egress.Group, c.Ingress.Group = units.BitRate(g.limit), units.BitRate(g.limit)
		return nil
	})))
	records := must.Len(t, fmt.Sprint("the records of ", id), 1, must.Get(g.node.Records(id))(t))
	shares := must.Len(t, "the shares of a pod in a group", 2, must.Get(g.node.Shares(records[0]))(t))
	for _, s := range shares {
		t.Cleanup(s.Close)
		g.loop.Join(s.Namespace+s.Direction.String(), s.Group, fmt.Sprint(id, s.Direction), s, s.Now, s.Most.ByteRate())
	}
}

// divide runs the loop until the test ends or the test calls stop.
func (g *groupOf) divide(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g.stop = cancel
	t.Cleanup(func() { cancel(); g.done.Wait() })
	g.done.Go(func() {
		runtime.LockOSThread() // the thread ends with it
		begun := threadTime()
		tick := time.NewTicker(divide.Tick)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			g.loop.Divide(wiremeter.Now())
			g.ticks++
			g.spent = threadTime() - begun
		}
	})
}

// threadTime is the processor time of the calling thread.
func threadTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// request sends small requests to a pod of the group, or from it, and to an unlimited one; what
// it returns waits for their end.
func (g *groupOf) request(t *testing.T, d Direction, last time.Duration) (wait func() (pod, free *lab.Latencies)) {
	t.Helper()
	var runs [2]*lab.RequestsRun
	for i, p := range []*Target{g.pods[0], g.rig.Free} {
		from, to := p.Ends(d)
		run := must.Get(g.rig.Lab.StartEcho(t.Context(), lab.EchoLoad{From: from, To: to, PerSecond: 200, Duration: last, Timeout: 5 * time.Second}))(t)
		runs[i] = run
	}
	return func() (pod, free *lab.Latencies) {
		t.Helper()
		pod = must.Get(runs[0].Wait(t.Context()))(t)
		return pod, must.Get(runs[1].Wait(t.Context()))(t)
	}
}

// holds sees that nobody takes a share for a difference, while it changes.
func (g *groupOf) holds(t *testing.T) {
	t.Helper()
	node := g.rig.open(t)
	for _, id := range g.ids {
		records := must.Get(node.Records(id))(t)
		for _, r := range records {
			if in, err := node.Inspect(r); err != nil || len(in.Plan) != 0 {
				t.Errorf("a pod with a share is to be changed: %v, %v", in.Plan, err)
			}
		}
	}
}

// sum is what all pods had on the wire in a direction. The meter at the client has that of
// all pods.
func (g *groupOf) sum(t *testing.T, d Direction, from, to time.Duration) *wiremeter.Series {
	t.Helper()
	all := &wiremeter.Series{}
	for i, pod := range g.pods {
		if d == Egress && i > 0 {
			break
		}
		wire := must.Get(pod.Wire(d, from, to))(t)
		if all.Bytes == nil {
			all.Bytes = make([]uint64, len(wire.Bytes))
		}
		for at := range min(len(wire.Bytes), len(all.Bytes)) {
			all.Bytes[at] += wire.Bytes[at]
		}
	}
	return all
}

// within sees that no second from one time to another has more than a part of the limit, unless a processor was away;
// 0 is any part. It returns what all pods had on the wire.
func (g *groupOf) within(t *testing.T, d Direction, from, to time.Duration, most float64, processors *lab.Processors) *wiremeter.Series {
	t.Helper()
	away, all := min(processors.Stop(), longestAway), g.sum(t, d, from, to)
	second, tenth := float64(all.Worst(time.Second))*8/float64(g.limit), float64(all.Worst(time.Second/10))*80/float64(g.limit)
	t.Logf("worst second %.4f, worst tenth %.4f of the limit; the loop took %.2f %% of a processor in %d ticks",
		second, tenth, 100*g.spent.Seconds()/(to-from).Seconds(), g.ticks)
	if allowed := most + away.Seconds(); most != 0 && second > allowed {
		t.Errorf("%.4f of the limit in a second, want at most %.4f", second, allowed)
	}
	return all
}

// Pods of a group have its limit together: one has all of it while the others send nothing,
// and eight have an eighth each.
func TestPrivilegedGroupHasItsLimitTogether(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	for _, d := range Directions {
		t.Run(d.String(), func(t *testing.T) {
			r := newRig(t)
			g := newGroup(t, r, groupLimit, groupLimit)
			g.divide(t)
			processors := must.Get(lab.WatchProcessors())(t)
			start := wiremeter.Now()
			g.bulk(t, d, g.pods[:1])
			until(t, 1500*time.Millisecond)
			joined := wiremeter.Now()
			others := g.bulk(t, d, g.pods[1:])
			begun := wiremeter.Now()
			pod, free := g.request(t, d, 2*time.Second)()
			ended := wiremeter.Now()
			g.holds(t)
			for _, run := range others {
				must.OK(t, must.Err(run.Stop(t.Context())))
			}
			stopped := wiremeter.Now()
			until(t, 1500*time.Millisecond)
			end := wiremeter.Now()
			g.within(t, d, start, end, 1.01, processors)
			t.Logf("the ceiling of the group dropped %d packets; requests: p50 and p99 %v %v in a pod, %v %v in one without a limit",
				g.dropped(t, d), pod.Quantile(0.5), pod.Quantile(0.99), free.Quantile(0.5), free.Quantile(0.99))
			must.Be(t, "requests without an answer, "+pod.Reason, 0, pod.Failed)
			for what, of := range map[string]*wiremeter.Series{
				"one pod": g.sum(t, d, start+700*time.Millisecond, joined), "all": g.sum(t, d, begun+time.Second, ended), "one again": g.sum(t, d, stopped+200*time.Millisecond, end),
			} {
				// The median: a machine that is busy elsewhere offers nothing for a while.
				windows := of.Windows(100 * time.Millisecond)
				used := float64(windows[len(windows)/2]) * 80 / groupLimit
				t.Logf("%s: %.4f of the limit", what, used)
				must.AtLeast(t, what+": part of the limit that is used", 0.97, used)
			}
			must.AtLeast(t, "fairness between pods", 0.95, g.fairness(t, d, begun+time.Second, ended))
		})
	}
}

// Without a limit together each pod has a part alone: one of eight that is busy uses an eighth, where a
// group gives it all.
func TestPrivilegedGroupBesideLimitsOfEach(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	mark.Nightly(t, "it compares")
	for _, d := range Directions {
		for _, c := range []struct {
			name        string
			limit, own  uint64
			least, most float64
		}{
			{"25M each", 0, groupLimit / groupPods, 0.1, 0.13},
			{"200M together", groupLimit, groupLimit, 0.5, 1.01},
		} {
			t.Run(d.String()+"/"+c.name, func(t *testing.T) {
				g := newGroup(t, newRig(t), c.limit, c.own)
				g.divide(t)
				g.bulk(t, d, g.pods[:1])
				until(t, time.Second)
				from := wiremeter.Now()
				until(t, time.Second)
				one := g.sum(t, d, from, wiremeter.Now()).BitsPerSec() / groupLimit
				g.bulk(t, d, g.pods[1:])
				until(t, time.Second)
				from = wiremeter.Now()
				pod, free := g.request(t, d, 2*time.Second)()
				all := g.sum(t, d, from, wiremeter.Now()).BitsPerSec() / groupLimit
				t.Logf("one of eight uses %.3f of 200 Mbit/s, all use %.3f; requests: p99 %v, without a limit %v", one, all, pod.Quantile(0.99), free.Quantile(0.99))
				must.Within(t, "part of the limit that one of eight uses", c.least, c.most, one)
			})
		}
	}
}

// An agent that is killed leaves the shares as they were: some pods have the limit, and those that
// begin then have their parked share on top. The ceiling behind the queues holds the sum.
func TestPrivilegedGroupWithoutAnAgent(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	for _, d := range Directions {
		t.Run(d.String(), func(t *testing.T) {
			g := newGroup(t, newRig(t), groupLimit, groupLimit)
			g.divide(t)
			before := g.dropped(t, d)
			g.bulk(t, d, g.pods[:3])
			until(t, 2*time.Second)
			divided := g.dropped(t, d)
			g.stop()
			g.done.Wait()
			processors := must.Get(lab.WatchProcessors())(t)
			killed := wiremeter.Now()
			g.bulk(t, d, g.pods[3:])
			until(t, 4*time.Second)
			end := wiremeter.Now()
			used := g.within(t, d, killed, end, 1.02, processors).BitsPerSec() / groupLimit
			t.Logf("%.4f of the limit in all; the ceiling dropped %d packets while an agent divided, and %d of the %.0f kB afterwards",
				used, divided-before, g.dropped(t, d)-divided, used*groupLimit*(end-killed).Seconds()/8e3)
			must.AtLeast(t, "part of the limit that is used", 0.9, used)
			if divided == g.dropped(t, d) {
				t.Error("the ceiling dropped nothing: the shares were not more than the limit")
			}
		})
	}
}

// A pod removes its queue, and a repair makes it anew before the loop looks again. The new queue begins
// with the first share, and gets the one that was set.
func TestPrivilegedGroupWhoseQueueIsMadeAnew(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	g := newGroup(t, newRig(t), groupLimit, groupLimit)
	g.divide(t)
	g.bulk(t, Egress, g.pods[:1])
	until(t, time.Second)
	g.stop()
	g.done.Wait()
	must.OK(t, g.pods[0].Netns.Run("tc qdisc del dev "+g.pods[0].IfName+" root"))
	must.OK(t, must.Err(g.node.Repair(t.Context(), g.ids[0])))
	g.divide(t)
	testutil.Eventually(t, 10*time.Second, "the pod has the limit again", func() bool {
		from := wiremeter.Now()
		until(t, 300*time.Millisecond)
		used := g.sum(t, Egress, from, wiremeter.Now()).BitsPerSec() / groupLimit
		t.Logf("%.4f of the limit", used)
		return used > 0.9
	})
}

// Light packets have less at once when their pod's share becomes smaller, or they would exceed it. They have more
// when a larger share stays, and not with each one that follows a burst.
func TestPrivilegedLightPacketsFollowAShareThatStays(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	g := newGroup(t, newRig(t), groupLimit, groupLimit)
	records := must.Get(g.node.Records(g.ids[0]))(t)
	shares := must.Get(g.node.Shares(records[0]))(t)
	var s *engine.Share
	for _, of := range shares {
		t.Cleanup(of.Close)
		if of.Direction == terms.Ingress {
			s = of
		}
	}
	light := func() (rate uint64) {
		must.OK(t, g.rig.Lab.Node().Do(func() error {
			link, err := netlink.LinkByName(g.pods[0].HostIfName)
			if err != nil {
				return err
			}
			classes, err := netlink.ClassList(link, 0)
			for _, c := range classes {
				if class, ok := c.(*netlink.HtbClass); ok && class.Handle&0xffff == 1 {
					rate = class.Rate
				}
			}
			return err
		}))
		return rate
	}
	at := wiremeter.Now()
	for i, step := range []struct {
		after       time.Duration
		share       units.ByteRate
		again       bool // before it is set
		least, most float64
	}{
		{0, 20_000_000, false, 0.4, 0.9},
		{time.Second, 2_000_000, false, 0.4, 0.9},
		{20 * time.Millisecond, 10_000_000, false, 0.08, 0.18},
		{20 * time.Millisecond, 20_000_000, false, 0.04, 0.09},
		{170 * time.Millisecond, 10_000_000, false, 0.08, 0.18},
		{20 * time.Millisecond, 12_000_000, true, 0.4, 0.9},
	} {
		at += step.after
		_, _, err := s.Look(at, false)
		must.OK(t, err)
		if again := s.Changed(); i > 0 && again != step.again {
			t.Errorf("step %d: to be set again: %v, want %v", i, again, step.again)
		}
		must.OK(t, s.Set(step.share))
		must.Within(t, fmt.Sprintf("step %d: what light packets have of a share of %v", i, step.share), step.least, step.most, float64(light())/float64(step.share))
	}
}

// A pod with several networks has shares of several attachments, which come and go one by one.
func TestPrivilegedSharesOfOnePodCloseAlone(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	g := newGroup(t, newRig(t), groupLimit, groupLimit)
	records := must.Get(g.node.Records(g.ids[0]))(t)
	for _, again := range []string{"first", "second"} {
		shares := must.Get(g.node.Shares(records[0]))(t)
		for _, s := range shares {
			s.Close()
		}
		g.loop.Divide(wiremeter.Now())
		if id := fmt.Sprint(g.ids[0], terms.Egress); !g.loop.Has(id) {
			t.Fatalf("%s time: another share of the pod was closed, and %s cannot be looked at", again, id)
		}
	}
	// Whoever divides keeps its node open: a pod without a share must be able to go.
	must.OK(t, must.Err(g.node.Set(t.Context(), g.ids[1], func(c *shaping.Config) error {
		c.Egress.Queue, c.Ingress.Queue = terms.QueueNone, terms.QueueNone
		return nil
	})))
	node := g.rig.open(t)
	records = must.Get(node.Records(g.ids[1]))(t)
	path := records[0].Interface.NetNSPath
	before := timesOpen(t, path)
	if shares, err := node.Shares(records[0]); err != nil || len(shares) != 0 || timesOpen(t, path) != before {
		t.Errorf("Shares() = %v, %v, and %s is open %d times, want no share, and %d", shares, err, path, timesOpen(t, path), before)
	}
}

// timesOpen is how often this process has a file open.
func timesOpen(t *testing.T, path string) (n int) {
	t.Helper()
	all := must.Get(filepath.Glob("/proc/self/fd/*"))(t)
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && filepath.Base(to) == filepath.Base(path) {
			n++
		}
	}
	return n
}

// dropped is what the ceiling of the group dropped since it was made, in packets.
func (g *groupOf) dropped(t *testing.T, d Direction) uint64 {
	t.Helper()
	packets, _, err := g.node.GroupDropped("group", d, units.BitRate(g.limit))
	must.OK(t, err)
	return packets
}

func until(t *testing.T, later time.Duration) {
	t.Helper()
	must.OK(t, wiremeter.Until(t.Context(), wiremeter.Now()+later))
}

// bulk starts two flows of each pod, which end with the test if nobody ends them.
func (g *groupOf) bulk(t *testing.T, d Direction, pods []*Target) (runs []*lab.ElephantRun) {
	t.Helper()
	for _, pod := range pods {
		from, to := pod.Ends(d)
		run := must.Get(g.rig.Lab.StartElephant(t.Context(), lab.Elephant{From: from, To: to, Flows: 2, Duration: time.Minute}))(t)
		runs = append(runs, run)
	}
	return runs
}

// fairness is 1 if each pod gets the same (Jain). Out of the pods one meter has all of it, and nobody knows.
func (g *groupOf) fairness(t *testing.T, d Direction, from, to time.Duration) float64 {
	t.Helper()
	if d == Egress {
		return 1
	}
	var sum, squares float64
	for _, pod := range g.pods {
		wire := must.Get(pod.Wire(d, from, to))(t)
		sum += wire.BitsPerSec()
		squares += wire.BitsPerSec() * wire.BitsPerSec()
	}
	return sum * sum / (float64(len(g.pods)) * squares)
}

// groupOfNamespace makes pods of a namespace with a limit into them, and what runs the agent's part
// until stop is called.
func groupOfNamespace(t *testing.T, pods int, also netconf.Namespace) (g *groupOf, links *netlink.Handle, node *engine.Node, run func() (stop func())) {
	t.Helper()
	r := newRig(t)
	namespace := netconf.Namespace{netconf.AnnotationDomain + "node-ingress-rate": "10M"}
	maps.Copy(namespace, also)
	mail := mailbox.Dir(engine.DefaultPaths.Run)
	must.OK(t, mail.RecordNamespace(r.Lab.Name(), namespace))
	t.Cleanup(func() { _ = mail.RecordNamespace(r.Lab.Name(), nil) })
	network := must.Get(r.Lab.Network("group", lab.PodweirEntry(nil)))(t)
	g = &groupOf{rig: r, limit: 10 * mbit} // an emulated processor carries it
	for range pods {
		pod := must.Get(network.Pod(t.Context(), lab.PodOptions{Namespace: r.Lab.Name()}))(t)
		g.pods = append(g.pods, r.metered(t, pod))
		g.ids = append(g.ids, attach.ID{Network: network.Name, ContainerID: pod.ContainerID, IfName: pod.IfName})
	}
	must.OK(t, r.Lab.Node().Do(func() (err error) { // its thread divides from then on
		if links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		node, err = engine.Open(engine.DefaultPaths)
		return err
	}))
	t.Cleanup(links.Close)
	t.Cleanup(node.Close)
	return g, links, node, func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			_ = r.Lab.Node().Do(func() error { return divide.Run(ctx, engine.DefaultPaths, slog.New(slog.DiscardHandler), nil) })
		})
		return func() { cancel(); done.Wait() }
	}
}

// has waits until the first pod has a part of the limit.
func (g *groupOf) has(t *testing.T, what string, least, most float64) {
	t.Helper()
	testutil.Eventually(t, 20*time.Second, what, func() bool {
		from := wiremeter.Now()
		until(t, 500*time.Millisecond)
		wire := must.Get(g.pods[0].Wire(Ingress, from, wiremeter.Now()))(t)
		share := wire.BitsPerSec() / float64(g.limit)
		t.Logf("%s: %.4f of the limit", what, share)
		return share > least && share < most
	})
}

// shared waits until the first pod's queue has a part of the limit. That is what the agent decides: an
// emulated processor comes too late for a queue now and then, and uses less.
func (g *groupOf) shared(t *testing.T, links *netlink.Handle, what string, least, most float64) {
	t.Helper()
	testutil.Eventually(t, 20*time.Second, what, func() bool {
		link := must.Get(links.LinkByName(g.pods[0].HostIfName))(t)
		classes := must.Get(links.ClassList(link, 0))(t)
		for _, c := range classes {
			// The pod's share; other classes are below it.
			if class, ok := c.(*netlink.HtbClass); ok && class.Handle&0xffff == 4 {
				part := float64(class.Rate) * 8 / float64(g.limit)
				return part > least && part < most
			}
		}
		return false
	})
}

// The agent's part finds the pods of a namespace with a limit by itself, takes what is there after a restart,
// and leaves equal parts when it ends.
func TestPrivilegedGroupOfANamespace(t *testing.T) {
	mark.Kernels(t, "kernels change classes of HTB differently")
	testutil.RequireQdisc(t, "htb", "tbf")
	g, links, _, run := groupOfNamespace(t, 3, nil)
	g.bulk(t, Ingress, g.pods[:1])
	for _, life := range []string{"first", "after a restart"} {
		stop := run()
		g.shared(t, links, life+", one pod has the limit", 0.97, 1.1)
		g.has(t, life+", it uses more than a third", 0.4, 1.1)
		stop()
		g.shared(t, links, life+", ended, it has a third", 0.33, 0.34)
		g.has(t, life+", ended, it uses no more", 0.1, 0.37)
	}
}

// Limits that are observed only change nothing on any queue, also where pods have them together, and
// nobody divides among such pods. Enforced and observed again, the queue comes and goes.
func TestPrivilegedObservedGroupHasNoQueue(t *testing.T) {
	mark.Kernels(t, "kernels change classes of HTB differently")
	testutil.RequireQdisc(t, "htb", "tbf")
	g, links, node, run := groupOfNamespace(t, 2, netconf.Namespace{netconf.AnnotationDomain + "enforce": "observe"})
	defer run()()
	mail := mailbox.Dir(engine.DefaultPaths.Run)
	divided := func() (all []mailbox.Group) {
		groups := must.Get(mail.Groups())(t)
		return slices.DeleteFunc(groups, func(o mailbox.Group) bool { return o.Namespace != g.rig.Lab.Name() })
	}
	const noQueue = "[noqueue] [noqueue]"
	g.bulk(t, Ingress, g.pods[:1])
	for range 20 { // the loop looks for pods once in a second
		until(t, 100*time.Millisecond)
		if got, groups := g.queues(t, links), divided(); got != noQueue || len(groups) != 0 {
			t.Fatalf("queues %s and groups %v of limits that are observed, want none", got, groups)
		}
	}
	g.has(t, "observed, more than the limit", 1.2, 1e6)
	observe := func(only bool) {
		for _, id := range g.ids {
			must.OK(t, must.Err(node.Set(t.Context(), id, func(c *shaping.Config) error { c.Observe = only; return nil })))
		}
	}
	observe(false)
	testutil.Eventually(t, 10*time.Second, "the limit is divided", func() bool { all := divided(); return len(all) == 1 && all[0].Pods == 2 })
	g.shared(t, links, "enforced, one pod has the limit", 0.97, 1.1)
	g.has(t, "enforced", 0.4, 1.1)
	observe(true)
	testutil.Eventually(t, 10*time.Second, "nobody divides", func() bool { return len(divided()) == 0 })
	must.Be(t, "queues of limits that are observed again", noQueue, g.queues(t, links))
	g.has(t, "observed again, more than the limit", 1.2, 1e6)
}

// queues are those of the pods' devices on the host, by their kinds.
func (g *groupOf) queues(t *testing.T, links *netlink.Handle) string {
	t.Helper()
	var all []string
	for _, pod := range g.pods {
		link := must.Get(links.LinkByName(pod.HostIfName))(t)
		qdiscs := must.Get(links.QdiscList(link))(t)
		var kinds []string
		for _, q := range qdiscs {
			kinds = append(kinds, q.Type())
		}
		all = append(all, fmt.Sprint(kinds))
	}
	return strings.Join(all, " ")
}
