// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

// Agent is what podweir's agent says of itself.
type Agent struct {
	// NotReady are the parts that do not work; none if it is ready.
	NotReady []Part
	// Delivery is how it gets podweir into the set-up of pods, "" if it does not.
	Delivery profiles.Delivery
	// Notes are of parts that work, and not as somebody may think.
	Notes []Part
}

// Part is a part of the agent, and what is wrong with it.
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

// With is a report with what the agent says of itself now: its own doctor, which does not ask it, looked before. Run is
// [Options.Run].
func (r *Report) With(a *Agent, run string) *Report {
	if r == nil {
		return nil
	}
	now := *r
	now.Checks, now.Count = slices.Clone(r.Checks), maps.Clone(r.Count)
	for _, c := range Checks() {
		i := slices.IndexFunc(now.Checks, func(o Outcome) bool { return o.Code == c.Code })
		if c.Code != "PW613" || i < 0 {
			continue
		}
		now.Count[now.Checks[i].Status]--
		now.Checks[i] = c.outcome(&Facts{Options: Options{Run: run}, Agent: a}, nil)
		now.Count[now.Checks[i].Status]++
	}
	return &now
}

// noteFixes are cures by the name of the part that a note is of.
var noteFixes = map[string]string{
	"settings": "restart the agent, unless an upgrade is about to: kubectl rollout restart of its DaemonSet",
	"rights":   "give the service account the rights that it lacks (docs/howto/install-with-helm.md); the agent sees it within 30 s",
}

func checkAgent(f *Facts) Outcome {
	switch {
	case f.AgentErr != nil:
		return unknown(f.AgentErr.Error())
	case f.Agent == nil && len(f.Node.Agents()) > 0:
		return skip("the agent does not answer on the loopback address here: run podweir doctor in its pod")
	case f.Agent == nil:
		return skip("no agent answers here")
	case len(f.Agent.NotReady) > 0:
		parts := terms.Texts(f.Agent.NotReady)
		return breaks("not ready: "+strings.Join(parts, "; "), "every part works", "mend what the reason names; the agent goes on by itself", parts...)
	case len(f.Agent.Notes) > 0:
		notes := terms.Texts(f.Agent.Notes)
		var fixes []string
		for _, n := range f.Agent.Notes {
			fixes = append(fixes, noteFixes[n.Name])
		}
		return warns(strings.Join(notes, "; "), "an agent that works by what its settings are now, with every right",
			strings.Join(fixes, "; "), notes...)
	}
	return holds("every part works")
}

func none(*Facts) Outcome { return holds("none") }

// noneOverdue and noneExceeded are what the agent found of limits if it found nothing.
func noneOverdue(f *Facts) Outcome {
	if !f.Watched {
		return f.unwatched()
	}
	return holds("none")
}

func noneExceeded(f *Facts) Outcome {
	switch {
	case !f.Watched:
		return f.unwatched()
	case f.UnenforcedErr != nil:
		return unknown(f.UnenforcedErr.Error())
	}
	return holds("none is exceeded")
}

// unwatched is the finding where no agent looked within the last seconds: what one
// recorded before says nothing of now.
func (f *Facts) unwatched() Outcome {
	if f.agentRuns() {
		return unknown("an agent runs, and has not looked at the limits of pods for some seconds: it has just started, or its log says why")
	}
	return skip("no agent watches the limits of pods")
}
