// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/podweir/podweir/compat/order"
	"github.com/podweir/podweir/compat/profiles"
)

func modeChecks() []Check {
	return []Check{{
		Code: "PW507", Title: "the attach mode that was asked for can be had", Category: CategoryDatapath, Severity: SeverityFail,
		Looks: "the modes of the host side that podweir's entry names, and who is on the hooks of the pods' devices",
		Why:   "podweir puts no filter where another party has a program: pods get the mode auto in place of the one by name",
		Mend:  "Take away the default mode, egressMode or ingressMode: auto takes what can be had.",
		run:   checkMode,
	}}
}

// checkMode asks for each device where a program would go. It holds for pods to
// come, too, which the failures of those that are there (PW601) do not.
func checkMode(f *Facts) Finding {
	keys, file := f.entryKeys()
	type want struct {
		direction string
		mode      profiles.Mode
	}
	var asked []want
	for _, direction := range []string{"egress", "ingress"} {
		mode, ok := keys[direction+"Mode"].(string)
		if !ok {
			mode, _ = keys["mode"].(string)
		}
		switch m := profiles.Mode(mode); m {
		case profiles.ModeTCXHostSide, profiles.ModeClsactHostSide:
			asked = append(asked, want{direction, m})
		case profiles.ModeQdisc, profiles.ModeTCXPodSide, profiles.ModeClsactPodSide:
		}
	}
	if len(asked) == 0 {
		return skip("no mode of the host side is asked for by name")
	}
	return f.podDevices(func(devices []Device) Finding {
		var bad, unread, good []string
		for i := range devices {
			for _, w := range asked {
				where := devices[i].Name + " " + w.direction + ": "
				at, err := f.place(&devices[i], w.direction, w.mode)
				switch {
				case errors.Is(err, order.ErrUnread):
					unread = append(unread, where+err.Error())
				case err != nil:
					bad = append(bad, where+err.Error())
				default:
					good = append(good, where+at.String())
				}
			}
		}
		switch {
		case len(bad) > 0:
			return breaks(shorten(bad), "a mode that can be had", "take away the default mode in "+file+", and recreate the pods", bad...)
		case len(unread) > 0:
			return unknown(shorten(unread))
		}
		return holds(fmt.Sprintf("on %d devices", len(devices)), good...)
	})
}

// place decides for one direction of one pod.
func (f *Facts) place(d *Device, direction string, mode profiles.Mode) (order.Placement, error) {
	hook, attach := &d.In, &f.Profile.Egress // what the pod sends enters there
	if direction == "ingress" {
		hook, attach = &d.Out, &f.Profile.Ingress
	}
	if strings.HasPrefix(string(mode), "tcx") && f.FeaturesErr == nil && f.Features.TCX == profiles.No {
		return order.Placement{}, fmt.Errorf("mode %s: %w", mode, errNoTCX)
	}
	return order.Place(hook, f.Profile, mode, attach)
}

var errNoTCX = errors.New("the kernel has no TCX (Linux 6.6)")
