// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var (
	kernelPacing = shaping.Pacing{RTTLog: 9, MinSegments: 2}
	ownPacing    = shaping.Pacing{RTTLog: 0, MinSegments: 8}
)

// pacedWorld is a node whose kernel has the sysctls.
func pacedWorld(now shaping.Pacing) *world {
	w := newWorld()
	w.pacing = &now
	return w
}

// An author may have chosen what podweir would. It stays when the limit goes, unless podweir's
// queue without a record says that it was podweir.
func TestPacingOfTheAuthorAsPodweirs(t *testing.T) {
	w := pacedWorld(ownPacing)
	ensure(t, w, &shaping.Config{Egress: limit(100_000_000)})
	must.OK(t, w.engine().Remove(t.Context(), podID))
	if *w.pacing != ownPacing {
		t.Errorf("the author's %v became %v", ownPacing, w.pacing)
	}
	w = pacedWorld(kernelPacing)
	ensure(t, w, &shaping.Config{Egress: limit(100_000_000)})
	clear(w.records)
	clear(w.dataplanes)
	ensure(t, w, &shaping.Config{Egress: limit(1_000_000_000)})
	if *w.pacing != kernelPacing {
		t.Errorf("after the record was lost and the limit raised: %v, want %v", w.pacing, kernelPacing)
	}
}

// Two limits in one namespace agree about it, and the last one gives back what was there before.
func TestPacingOfTwoInterfaces(t *testing.T) {
	now, first, second := kernelPacing, shaping.Pacing{}, shaping.Pacing{}
	for range 2 {
		now, first = now.Next(first, true)
		if now, second = now.Next(second, true); now != ownPacing {
			t.Errorf("with two limits the namespace has %v, want %v", now, ownPacing)
		}
	}
	now, _ = now.Next(first, false)
	if now, second = now.Next(second, true); now != ownPacing {
		t.Errorf("with one left: %v, want %v", now, ownPacing)
	}
	if now, _ = now.Next(second, false); now != kernelPacing {
		t.Errorf("without limits: %v, want %v", now, kernelPacing)
	}
}
