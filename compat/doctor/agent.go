// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"slices"
	"strings"
	"time"
)

// Agent is what podweir's agent says of itself.
type Agent struct {
	// NotReady are the parts that do not work; none if it is ready.
	NotReady []Part
}

// Part is a part of the agent that does not work, and why.
type Part struct{ Name, Reason string }

func (p Part) String() string { return p.Name + ": " + p.Reason }

// knowsPods says that an agent answered, and that it has looked at all pods of the node as
// the API server has them.
func (a *Agent) knowsPods() bool {
	return a != nil && !slices.ContainsFunc(a.NotReady, func(p Part) bool {
		return p.Name == "exclusive" || p.Name == "api" || p.Name == "pass"
	})
}

func (f *Facts) agentRuns() bool { return f.Agent != nil || len(f.Node.Agents()) > 0 }

func checkAgent(f *Facts) Finding {
	switch {
	case f.AgentErr != nil:
		return unknown(f.AgentErr.Error())
	case f.Agent == nil && len(f.Node.Agents()) > 0:
		return skip("the agent does not answer on the loopback address here: run podweir doctor in its pod")
	case f.Agent == nil:
		return skip("no agent answers here")
	case len(f.Agent.NotReady) > 0:
		parts := make([]string, len(f.Agent.NotReady))
		for i, p := range f.Agent.NotReady {
			parts[i] = p.String()
		}
		return breaks("not ready: "+strings.Join(parts, "; "), "every part works", "mend what the reason names; the agent goes on by itself", parts...)
	}
	return holds("every part works")
}

// Overdue is a running pod with a limit whose network the agent cannot find.
type Overdue struct {
	// Pod is namespace/name.
	Pod    string
	Since  time.Time
	Reason string
}

func checkOverdue(f *Facts) Finding {
	if f.OverdueErr != nil {
		return unknown(f.OverdueErr.Error())
	}
	// An agent that cannot read counters looks for networks all the same.
	if !f.Watched && (len(f.Overdue) == 0 || !f.agentRuns()) {
		return f.unwatched()
	}
	if len(f.Overdue) == 0 {
		return holds("none")
	}
	list := make([]string, len(f.Overdue))
	for i, o := range f.Overdue {
		list[i] = o.Pod + " since " + o.Since.UTC().Format(time.RFC3339) + ": " + o.Reason
	}
	namespace, name, _ := strings.Cut(f.Overdue[0].Pod, "/")
	return breaks(shorten(list), "a limit on every pod that asks for one", "recreate the pod: kubectl delete pod -n "+namespace+" "+name, list...)
}

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
		return breaks(shorten(bad), "no pod beyond its limit", "podweir status; podweir explain PW612", bad...).of(pods)
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
