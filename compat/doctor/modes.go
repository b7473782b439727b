// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"errors"
	"fmt"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// checkMode asks for each device where a program would go. It holds for pods to
// come, too, which the failures of those that are there (PW601) do not.
func checkMode(f *Facts) Finding {
	keys, file := f.entryKeys()
	type want struct {
		direction terms.Direction
		mode      terms.Mode
	}
	var asked []want
	for _, direction := range terms.Directions {
		named, ok := keys[direction.String()+"Mode"].(string)
		if !ok {
			named, _ = keys["mode"].(string)
		}
		if mode, err := terms.ParseMode(named); err == nil && mode.HostSide() {
			asked = append(asked, want{direction, mode})
		}
	}
	if len(asked) == 0 {
		return skip("no mode of the host side is requested by name")
	}
	return f.podDevices(func(devices []Device) Finding {
		var bad, unread, good []string
		for i := range devices {
			for _, w := range asked {
				where := devices[i].Name + " " + w.direction.String() + ": "
				kind, err := f.mayAttach(&devices[i], w.direction, w.mode)
				switch {
				case errors.Is(err, judge.ErrUnread):
					unread = append(unread, where+err.Error())
				case err != nil:
					bad = append(bad, where+err.Error())
				default:
					good = append(good, where+kind.String())
				}
			}
		}
		switch {
		case len(bad) > 0:
			return breaks(shorten(bad), "a mode that is available", "take away the default mode in "+file+", and recreate the pods", bad...)
		case len(unread) > 0:
			return unknown(shorten(unread))
		}
		return holds(fmt.Sprintf("on %d devices", len(devices)), good...)
	})
}

// mayAttach asks the judge about one direction of one pod.
func (f *Facts) mayAttach(d *Device, direction terms.Direction, mode terms.Mode) (terms.HookKind, error) {
	chain, attach := &d.In, &f.Profile.Egress // what the pod sends enters there
	if direction == terms.Ingress {
		chain, attach = &d.Out, &f.Profile.Ingress
	}
	q := judge.Question{Mode: mode, Rules: attach.Rules(), TCX: f.FeaturesErr != nil || f.Features.TCX != profiles.No}
	return q.Attach(chain)
}
