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

func unenforcedChecks() []Check {
	return []Check{
		{
			Code: "PW612", Title: "every pod stays within its limit", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "limits that the agent saw exceeded, by the counters of the pods' devices, or taken away again and again, within the last minutes",
			Why:   "a pod that carries more than its limit takes it from others, whatever the configuration says",
			Mend: "The line says how much was carried and the likely cause. If the limit was taken away, look at what runs in the pod with CAP_NET_ADMIN. " +
				"If something takes packets past the queue, podweir doctor --probe names it; otherwise report it, with the output of podweir status -o json.",
			run: checkUnenforced,
		},
	}
}

func checkUnenforced(f *Facts) Finding {
	if f.UnenforcedErr != nil {
		return unknown(f.UnenforcedErr.Error())
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
