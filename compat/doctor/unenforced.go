// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

// Unenforced is a limit that the agent found not to hold.
type Unenforced struct {
	// Pod is namespace/name, or what else names it.
	Pod string
	// What is one line: the pod, the direction, since when, how much, and why.
	What string
	// Held says that the limit holds all the same, because something else keeps it.
	Held bool
}

func checkUnenforced(f *Facts) Finding {
	if f.UnenforcedErr != nil {
		return unknown(f.UnenforcedErr.Error())
	}
	if !f.Watched {
		return f.unwatched()
	}
	var bad, pods []string
	held := true
	for _, u := range f.Unenforced {
		bad, pods = append(bad, u.What), append(pods, u.Pod)
		held = held && u.Held
	}
	switch {
	case len(bad) == 0:
		return holds("none is exceeded")
	case held:
		return warns(shorten(bad), "limits that stay in place", "podweir status", bad...).of(pods)
	default:
		return breaks(shorten(bad), "no pod beyond its limit", "podweir status, and podweir doctor --probe", bad...).of(pods)
	}
}

// unwatched is the finding where no agent looked within the last seconds: what one
// recorded before says nothing of now.
func (f *Facts) unwatched() Finding {
	if f.agentRuns() {
		return unknown("an agent runs, and has not looked at the limits of pods for some seconds: it has just started, or its log says why")
	}
	return skip("no agent watches the limits of pods")
}
