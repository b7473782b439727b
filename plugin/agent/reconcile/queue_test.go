// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A pod's look comes while another worker looks at the pod's attachment, of which it knows no pod yet.
func TestClaimDuringALook(t *testing.T) {
	r := &Reconciler{queue: newQueue(), states: make(map[key]*state)}
	a := key{id: attach.ID{ContainerID: "a"}}
	r.queue.add(a, 0)
	if k, ok := r.queue.next(t.Context()); !ok || k != a {
		t.Fatalf("next = %v, %v, want %v", k, ok, a)
	}
	(&look{Reconciler: r, key: key{uid: "pod"}}).claim([]attached{{id: a.id}, {id: attach.ID{ContainerID: "b"}}})
	r.queue.done(a, false)
	if k, _, ok := r.queue.take(); !ok || k != a {
		t.Errorf("after the look: %v, %v, want another one at %v", k, ok, a)
	}
	r.queue.done(a, false)
	if k, _, ok := r.queue.take(); ok {
		t.Errorf("then a look at %v, want none: nobody looked at it before", k)
	}
}

func TestQueueHandsOutEachKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a, b := key{uid: "a"}, key{uid: "b"}
		next := func(want key, after time.Duration) {
			t.Helper()
			at := time.Now()
			got, ok := q.next(t.Context())
			if !ok || got != want || time.Since(at) != after {
				t.Fatalf("next = %v, %v after %v, want %v after %v", got, ok, time.Since(at), want, after)
			}
		}
		idle := func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if got, ok := q.next(ctx); ok {
				t.Fatalf("next = %v, want nothing", got)
			}
		}
		// Requested thrice, the earliest counts.
		q.add(a, time.Second)
		q.add(a, time.Hour)
		q.add(a, 10*time.Millisecond)
		q.add(b, time.Second)
		next(a, 10*time.Millisecond)
		// While it is worked on nobody else gets it.
		q.add(a, 0)
		next(b, 990*time.Millisecond)
		q.done(b, false)
		idle()
		q.done(a, false)
		next(a, 0)
		q.done(a, false)
		idle()
		must.Be(t, "keys that are remembered", 0, len(q.items))
	})
}

func TestQueueTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a := key{uid: "a"}
		q.add(a, 0)
		for _, least := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
			at := time.Now()
			q.next(t.Context())
			must.Within(t, "how long until it came", least, least+least/10, time.Since(at))
			q.done(a, true)
		}
		// What changes meanwhile does not wait.
		q.add(a, 0)
		at := time.Now()
		q.next(t.Context())
		must.Be(t, "wait for what was requested", 0, time.Since(at))
		q.done(a, false)
		must.Within(t, "the pause after 1000 failures", retryMax, retryMax+retryMax/10, pause(1000))
	})
}

// A rate that cannot be read keeps its direction as it was, and the other one follows
// what is requested: its annotation, and the maximum of the node.
func TestWithPrior(t *testing.T) {
	t.Parallel()
	const standard = "kubernetes.io/"
	before := &shaping.Config{Egress: &shaping.Limit{Rate: 30_000_000}, Ingress: &shaping.Limit{Rate: 40_000_000}}
	left := shaping.Deferred{Direction: terms.Ingress, Rate: 40_000_000, To: terms.ShaperCilium}
	for name, tt := range map[string]struct {
		ingress string
		prior   *shaping.Config
		want    shaping.Config
	}{
		"unreadable":            {"fast", before, shaping.Config{Ingress: before.Ingress}},
		"unreadable, none then": {"fast", &shaping.Config{Egress: before.Egress}, shaping.Config{}},
		"unreadable, left then": {"fast", &shaping.Config{Deferred: []shaping.Deferred{left}}, shaping.Config{Deferred: []shaping.Deferred{left}}},
	} {
		conf, err := netconf.ParseEntry([]byte(`{"cniVersion":"1.0.0","name":"n","type":"podweir-cni","egressMaxRate":"15M"}`), netconf.PodAnnotations{
			Values: map[string]string{standard + "egress-bandwidth": "20M", standard + "ingress-bandwidth": tt.ingress},
		}, nil)
		if err == nil || conf.Shaping.Egress == nil || conf.Shaping.Ingress != nil {
			t.Fatalf("%s: %+v, %v, want egress alone and an error", name, conf.Shaping, err)
		}
		got := withPrior(&conf.Shaping, tt.prior)
		must.Be(t, name+": egress, the maximum of now", 15_000_000, got.Egress.Rate)
		must.Be(t, name+": ingress", tt.want.Ingress, got.Ingress)
		must.Match(t, name+": left", tt.want.Deferred, got.Deferred)
		conf.Shaping = got
		must.Be(t, name+": noLimit()", tt.want.Ingress == nil, noLimit(conf))
		want := "ingress has no limit: "
		if tt.want.Ingress != nil {
			want = "ingress keeps the limit from before: "
		}
		if len(got.Notes) == 0 || !strings.HasPrefix(got.Notes[len(got.Notes)-1], want) {
			t.Errorf("%s: notes %q, want %q", name, got.Notes, want)
		}
	}
}

func TestLeftoversAreSearchedForFromTimeToTime(t *testing.T) {
	t.Parallel()
	const pass = time.Minute
	begin := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		found bool
		since time.Duration
		due   bool
	}{
		"nothing was found, a pass ago":                {false, pass, false},
		"nothing was found, nine passes ago":           {false, 9 * pass, false},
		"nothing was found, ten passes ago":            {false, 10 * pass, true},
		"nothing was found, ten passes ago but jitter": {false, 10*pass - time.Second, true},
		"something was found, just now":                {true, time.Second, false},
		"something was found, a pass ago":              {true, pass, true},
		"something was found, a pass ago but jitter":   {true, pass - time.Second, true},
	} {
		l := leftovers{at: begin}
		if tc.found {
			l.found = []engine.Lost{{}}
		}
		must.Be(t, name+": due", tc.due, l.due(begin.Add(tc.since), pass))
	}
}

// Only what is found twice is removed, and not what a pod without its limit may need.
func TestLeftoversThatStay(t *testing.T) {
	t.Parallel()
	on := func(inode uint64, host int) engine.Lost {
		return engine.Lost{Interface: attach.Interface{NetNSInode: inode, NetNSCookie: 10 * inode, PodIndex: 2, HostIndex: host}}
	}
	hostOnly := func(host int) engine.Lost { return engine.Lost{Interface: attach.Interface{HostIndex: host}} }
	inodes := map[string]uint64{"/run/netns/a": 1, "/run/netns/b": 2}
	is := func(path string, inode uint64) bool { return inodes[path] == inode }
	reused := on(1, 11)
	reused.Interface.NetNSCookie = 77
	for name, tc := range map[string]struct {
		then, now []engine.Lost
		paths     []string
		want      []engine.Lost
	}{
		"found for the first time":        {nil, []engine.Lost{on(1, 11)}, nil, nil},
		"found twice":                     {[]engine.Lost{on(1, 11), on(2, 12)}, []engine.Lost{on(2, 12)}, nil, []engine.Lost{on(2, 12)}},
		"a new pod in the same namespace": {[]engine.Lost{on(1, 11)}, []engine.Lost{reused}, nil, nil},
		"adopted meanwhile":               {[]engine.Lost{on(1, 11)}, nil, nil, nil},
		"of a pod without its limit": {
			[]engine.Lost{on(1, 11), on(2, 12)}, []engine.Lost{on(1, 11), on(2, 12)}, []string{"/run/netns/a"}, []engine.Lost{on(2, 12)},
		},
		"a device of the host's":                          {[]engine.Lost{hostOnly(11)}, []engine.Lost{hostOnly(11)}, nil, []engine.Lost{hostOnly(11)}},
		"another device of the host's":                    {[]engine.Lost{hostOnly(11)}, []engine.Lost{hostOnly(12)}, nil, nil},
		"a device of the host's, and pods without limits": {[]engine.Lost{hostOnly(11)}, []engine.Lost{hostOnly(11)}, []string{"/run/netns/b"}, nil},
	} {
		l := leftovers{found: tc.then}
		c := claims{paths: tc.paths, is: is}
		got := c.leave(l.again(tc.now))
		same := func(a, b engine.Lost) bool { return a.Interface == b.Interface }
		if !slices.EqualFunc(got, tc.want, same) {
			t.Errorf("%s: removes %+v, want %+v", name, got, tc.want)
		}
	}
}

// What was known of an attachment stays known, and watched, while it cannot be brought
// to what it should be, and is tried each second if nothing else holds it.
func TestAttachmentStaysAfterAnError(t *testing.T) {
	t.Parallel()
	one, other := attach.ID{ContainerID: "1"}, attach.ID{ContainerID: "2"}
	in := attach.Interface{PodName: "eth0", PodIndex: 2}
	prior := []KeptLimit{
		{ID: one, Interface: in, Limit: limitAt(terms.Egress, terms.SidePod, false)},
		{ID: one, Interface: in, Limit: limitAt(terms.Ingress, terms.SideHost, true)},
		{ID: other, Interface: attach.Interface{PodName: "eth1", PodIndex: 3}},
	}
	stale := []KeptLimit{prior[0], prior[1]}
	stale[0].Stale, stale[1].Stale = true, true
	for name, tt := range map[string]struct {
		prior  []KeptLimit
		err    error
		limits []KeptLimit
		// watch is how many interfaces are watched, wait how long until the next look.
		watch int
		wait  time.Duration
	}{
		"exposed":      {prior, errors.New("no buffer space"), stale, 1, driftPauseExposed},
		"with ceiling": {prior[1:], errors.New("no buffer space"), stale[1:], 1, time.Hour},
		"gone":         {prior, apply.ErrGone, nil, 0, time.Hour},
		"lacks":        {prior, errors.Join(errors.New("no buffer space"), &apply.HeldError{Lacks: []string{"lacks"}}), stale, 1, time.Hour},
		"new":          {nil, errors.New("no buffer space"), nil, 0, time.Hour},
	} {
		k := key{uid: "pod"}
		l := &look{Reconciler: New(Config{}), key: k}
		l.states[k] = &state{PodState: PodState{Limits: tt.prior}}
		l.watch.pods[k] = &podWatch{watched: []watched{{iface: in, redirect: true}, {iface: prior[2].Interface}}}
		l.keep(one, nil, tt.err, Mended)
		must.Match(t, name+": limits", tt.limits, l.Limits)
		if len(l.watched) != tt.watch || tt.watch == 1 && l.watched[0] != (watched{iface: in, redirect: true}) {
			t.Errorf("%s: watched %+v, want %d", name, l.watched, tt.watch)
		}
		l.retryExposed()
		must.Be(t, name+": it is tried again", true, l.retry)
		if _, wait, _ := l.queue.take(); wait > tt.wait || wait < tt.wait-time.Second/2 {
			t.Errorf("%s: the next look is in %v, want %v", name, wait, tt.wait)
		}
	}
}

func limitAt(d terms.Direction, side terms.Side, ceiling bool) terms.Limit {
	return terms.Limit{Direction: terms.Name(d), Side: terms.Name(side), Ceiling: ceiling}
}

// A pod's watch that failed begins again with the next look, though that finds the same
// interfaces.
func TestPrivilegedFailedWatchBeginsAgain(t *testing.T) {
	ns := testutil.NewNetNS(t)
	path := filepath.Join(t.TempDir(), "netns")
	w := New(Config{Log: slog.New(slog.DiscardHandler)}).watch
	k := key{uid: "pod"}
	list := []watched{{iface: attach.Interface{PodIndex: ns.Interface(t, "lo").Index, NetNSPath: path, NetNSInode: ns.Inode()}}}
	defer w.wg.Wait()
	defer w.set(t.Context(), k, nil)
	w.set(t.Context(), k, list)
	testutil.Eventually(t, 10*time.Second, "the watch has failed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.pods[k].failed
	})
	must.OK(t, os.Symlink(ns.Path(), path))
	w.set(t.Context(), k, list)
	testutil.Eventually(t, 10*time.Second, "a change is noticed", func() bool {
		ns.Run(t, "tc", "qdisc", "replace", "dev", "lo", "root", "pfifo")
		ns.Run(t, "tc", "qdisc", "del", "dev", "lo", "root")
		taken, _, ok := w.r.queue.take()
		return ok && taken == k
	})
}

// That a watch has begun asks for a look only where an interface is awaited: a look begins a watch that failed again.
func TestLooksThatAWatchAsksFor(t *testing.T) {
	t.Parallel()
	limited := attach.Interface{PodIndex: 2}
	for name, tt := range map[string]struct {
		watched watched
		indexes []int
		want    bool
	}{
		"begun":                      {watched{iface: limited}, []int{}, false},
		"begun, redirect":            {watched{iface: limited, redirect: true}, []int{}, false},
		"begun, awaited":             {watched{awaited: true}, []int{}, true},
		"events were lost":           {watched{iface: limited}, nil, true},
		"another device":             {watched{iface: limited}, []int{3}, false},
		"another device, a redirect": {watched{iface: limited, redirect: true}, []int{3}, true},
		"its device":                 {watched{iface: limited}, []int{3, 2}, true},
	} {
		w := New(Config{}).watch
		k := key{uid: "pod"}
		w.inPod(k, tt.watched, tt.indexes)
		must.Be(t, name+": a look is asked for", tt.want, w.r.queue.has(k))
	}
}

var start = time.Unix(1_700_000_000, 0)

// at is so many seconds after the start.
func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func TestFightBeginsWithTheThirdMendInAMinute(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mends []float64
		fight bool
	}{
		"two":              {[]float64{0, 1}, false},
		"two at once":      {[]float64{0, 0.9}, true},
		"three":            {[]float64{0, 1, 2}, true},
		"three in 59 s":    {[]float64{0, 30, 59}, true},
		"three in 61 s":    {[]float64{0, 30, 61}, false},
		"one each 31 s":    {[]float64{0, 31, 62, 93, 124, 155}, false},
		"three after some": {[]float64{0, 100, 200, 230, 240}, true},
	} {
		f := &fight{}
		for _, s := range tt.mends {
			f.mended(at(s), "queue", true, true)
		}
		last := at(tt.mends[len(tt.mends)-1])
		must.Be(t, name+": fight", tt.fight, f.on(last))
	}
}

// Two mends at once are no fight where something else holds the limit, or where it is not
// in the pod's reach. The fight is over when nothing was mended for a while.
func TestFightIsOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ inPod, exposed bool }{
		"a ceiling holds it": {inPod: true}, "not in the pod": {exposed: true},
	} {
		f := &fight{}
		for s := range 4 {
			f.mended(at(0.5*float64(s)+1.5), "queue", tt.inPod, tt.exposed)
			must.Be(t, fmt.Sprintf("%s: a fight after %d mends", name, s+1), s >= 2, f.on(at(1.5)))
		}
		must.Be(t, name+": a fight", true, f.on(at(3)))
		must.Be(t, name+": in the pod", tt.inPod, f.inPod)
		if s := quiet.Seconds(); !f.on(at(2+s)) || f.on(at(3+s)) {
			t.Errorf("%s: not over %v after the last mend", name, quiet)
		}
		f.mended(at(1000), "queue", tt.inPod, tt.exposed)
		must.Be(t, name+": one mend later on is a fight", false, f.on(at(1000)))
	}
}

// The pod is looked at again when its fight is over, and not at once.
func TestFightHasALookWhenItIsOver(t *testing.T) {
	t.Parallel()
	k, f := key{uid: "pod"}, &fight{}
	for range 3 {
		f.mended(time.Now(), "queue", true, true)
	}
	l := &look{Reconciler: New(Config{}), key: k}
	l.states[k] = &state{fights: map[fightKey]*fight{{direction: terms.Egress}: f}}
	l.fighting()
	_, wait, ok := l.queue.take()
	if ok || wait < quiet-time.Minute || wait > quiet+time.Second || len(l.Tampered) != 1 {
		t.Errorf("the next look of %v is in %v, want in about %v", l.Tampered, wait, quiet)
	}
}

// Nobody's limit is left away for long because he takes it away often.
func TestDriftPause(t *testing.T) {
	t.Parallel()
	at := func(side terms.Side, ceiling bool) KeptLimit {
		return KeptLimit{Limit: limitAt(terms.Egress, side, ceiling)}
	}
	covered := at(terms.SidePod, true)
	for name, tt := range map[string]struct {
		limits []KeptLimit
		mends  int
		want   time.Duration
	}{
		"the first":                       {[]KeptLimit{at(terms.SidePod, false)}, 0, driftPauseFirst},
		"the first with a ceiling":        {[]KeptLimit{covered}, 0, driftPauseMin},
		"the next is quick":               {[]KeptLimit{at(terms.SidePod, false)}, 2, driftPauseNext},
		"in a fight":                      {[]KeptLimit{at(terms.SidePod, false)}, 100, driftPauseExposed},
		"one of two":                      {[]KeptLimit{covered, at(terms.SideIFB, false)}, 100, driftPauseExposed},
		"on the host side":                {[]KeptLimit{covered, at(terms.SideHost, false)}, 100, driftPauseExposed},
		"the first on the host side":      {[]KeptLimit{covered, at(terms.SideHost, false)}, 0, driftPauseMin},
		"with a ceiling":                  {[]KeptLimit{covered}, 2, 4 * driftPauseMin},
		"with a ceiling, for a long time": {[]KeptLimit{covered}, 100, driftPauseMax},
	} {
		s := &state{PodState: PodState{Limits: tt.limits}, mends: make([]time.Time, tt.mends)}
		must.Be(t, name, tt.want, s.driftPause())
	}
}
