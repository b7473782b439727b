// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import "strings"

// Agent is what podweir's agent says of itself.
type Agent struct {
	// NotReady are the parts that do not work, each with the reason; none if it is ready.
	NotReady []string
}

// agentRuns says whether an agent of podweir is seen on the node.
func (f *Facts) agentRuns() bool { return f.Agent != nil || len(f.Node.Agents()) > 0 }

func agentChecks() []Check {
	return []Check{
		{
			Code: "PW613", Title: "podweir's agent is ready", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "what the agent answers to /readyz on the loopback address of its network namespace",
			Why:   "pods keep their limits, and the agent goes on repairing them. What needs the part that does not work has to wait: without the API server, changed annotations are not followed",
			Mend: "The finding names the part that does not work, and why. api: the API server must be reachable from the node, and the service account needs its rights. " +
				"delivery: PW202 and PW210. nri: PW115. node: the checks of the category node. The agent's log has the details; it goes on by itself.",
			run: checkAgent,
		},
	}
}

func checkAgent(f *Facts) Finding {
	switch {
	case f.AgentErr != nil:
		return unknown(f.AgentErr.Error())
	case f.Agent == nil && len(f.Node.Agents()) > 0:
		return skip("the agent does not answer on the loopback address here: run podweir doctor in its pod")
	case f.Agent == nil:
		return skip("no agent answers here")
	case len(f.Agent.NotReady) > 0:
		return breaks("not ready: "+strings.Join(f.Agent.NotReady, "; "), "every part works", "mend what the reason names; the agent goes on by itself", f.Agent.NotReady...)
	}
	return holds("every part works")
}
