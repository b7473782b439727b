// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
)

// lookEvery is how often the state is looked at: as often as the kept
// connection sends.
const lookEvery = time.Second / perSecond

// looks asks the pod's own sketch and holds, again and again, what the
// classifier would make of a flow: the same words by the same arithmetic.
type looks struct {
	state *state
	cfg   *image.Config
	id    model.FlowID
	// all and heavy count.
	all, heavy int
}

func newLooks(pod *traffic.Target, d traffic.Direction, victim *model.Flow) (*looks, error) {
	s, err := openState(pod, d)
	if err != nil {
		return nil, err
	}
	keys := model.Keys(s.slot.HashKeys)
	return &looks{state: s, cfg: s.config(), id: keys.Hash(victim)}, nil
}

// watch looks until ctx ends or the time of [wiremeter.Now] has come.
func (l *looks) watch(ctx context.Context, until time.Duration) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for wiremeter.Now() < until {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		l.look()
	}
	return nil
}

func (l *looks) look() {
	s := l.state.slot.State // at one moment, or nearly
	l.all++
	if heavy(&s, l.cfg, l.id, model.Tick(uint64(wiremeter.Now()))) {
		l.heavy++
	}
}

// heavy says whether a flow would be taken for heavy if it sent now, be it
// because of its estimate or because it is held.
func heavy(s *image.State, cfg *image.Config, id model.FlowID, tick uint32) bool {
	var sketch model.Sketch
	for row := range s.Cells {
		for i, c := range s.Cells[row] {
			sketch.Cells[row][i] = model.Cell{Est: c.Est, Tick: c.Tick}
		}
	}
	flows := model.FlowTable{Words: s.Flows}
	big := model.BigEstimate(model.ShareIn(s.Fair), cfg.LightLeast, cfg.LightMost)
	est := sketch.Update(id, tick, 0, uint32(cfg.HalfLifeShift))
	return uint64(est) >= uint64(big)+uint64(big/4)+uint64(cfg.FrameEst) || flows.Held(id, tick, cfg.HoldTicks)
}

func (l *looks) close() { l.state.close() }
