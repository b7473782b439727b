// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"slices"
	"strings"
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

func none(*Facts) Finding { return holds("none") }

// noneOverdue and noneExceeded are what the agent found of limits if it found nothing.
func noneOverdue(f *Facts) Finding {
	if !f.Watched {
		return f.unwatched()
	}
	return holds("none")
}

func noneExceeded(f *Facts) Finding {
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
func (f *Facts) unwatched() Finding {
	if f.agentRuns() {
		return unknown("an agent runs, and has not looked at the limits of pods for some seconds: it has just started, or its log says why")
	}
	return skip("no agent watches the limits of pods")
}
