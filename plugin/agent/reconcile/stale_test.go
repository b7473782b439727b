// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
)

// What was known of an attachment stays known, and watched, while it cannot be brought
// to what it should be, and is tried each second if nothing else holds it.
func TestAttachmentStaysAfterAnError(t *testing.T) {
	t.Parallel()
	one, other := attach.ID{ContainerID: "1"}, attach.ID{ContainerID: "2"}
	in := attach.Interface{PodName: "eth0", PodIndex: 2}
	prior := []Limit{
		{ID: one, Interface: in, Limit: limitAt(terms.Egress, terms.SidePod, false)},
		{ID: one, Interface: in, Limit: limitAt(terms.Ingress, terms.SideHost, true)},
		{ID: other, Interface: attach.Interface{PodName: "eth1", PodIndex: 3}},
	}
	stale := []Limit{prior[0], prior[1]}
	stale[0].Stale, stale[1].Stale = true, true
	for name, tt := range map[string]struct {
		prior  []Limit
		err    error
		limits []Limit
		// watch is how many interfaces are watched, wait how long until the next look.
		watch int
		wait  time.Duration
	}{
		"exposed":      {prior, errors.New("no buffer space"), stale, 1, driftPauseExposed},
		"with ceiling": {prior[1:], errors.New("no buffer space"), stale[1:], 1, time.Hour},
		"gone":         {prior, attach.ErrGone, nil, 0, time.Hour},
		"new":          {nil, errors.New("no buffer space"), nil, 0, time.Hour},
	} {
		k := key{uid: "pod"}
		l := &look{Reconciler: New(Config{}), key: k}
		l.states[k] = &state{PodState: PodState{Limits: tt.prior}}
		l.watch.pods[k] = &podWatch{watched: []watched{{iface: in, redirect: true}, {iface: prior[2].Interface}}}
		l.keep(one, nil, tt.err, Mended)
		if diff := cmp.Diff(tt.limits, l.Limits); diff != "" {
			t.Errorf("%s: limits (-want +got):\n%s", name, diff)
		}
		if len(l.watched) != tt.watch || tt.watch == 1 && l.watched[0] != (watched{in, true}) {
			t.Errorf("%s: watched %+v, want %d", name, l.watched, tt.watch)
		}
		l.retryExposed()
		if _, wait, _ := l.queue.take(); wait > tt.wait || wait < tt.wait-time.Second/2 {
			t.Errorf("%s: the next look is in %v, want %v", name, wait, tt.wait)
		}
	}
}

func limitAt(d terms.Direction, side terms.Side, ceiling bool) terms.Limit {
	return terms.Limit{Direction: terms.Name(d), Side: terms.Name(side), Ceiling: ceiling}
}
