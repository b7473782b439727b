// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/step"
)

// The caps of the pods that stay, in bits per second and as annotations.
const (
	capIn, capOut = 20_000_000, 10_000_000
	capInText     = "20M"
	capOutText    = "10M"
	otherIn       = 10_000_000
	otherOut      = 30_000_000
	otherInText   = "10M"
	otherOutText  = "30M"
	// measured is how long the step that is about caps measures TCP, looked how long the
	// others do, which see that the caps still hold: TCP takes half of it to settle
	// (e2e/k8s/workload). Datagrams do not settle.
	measured  = 4 * time.Second
	looked    = 3 * time.Second
	datagrams = 2 * time.Second
	// What pods without a limit are offered, of which a quarter is to pass: more than
	// any cap beside them. Each datagram is a write; TCP has 64 KiB in one.
	controlOffered   = 200_000_000
	controlDatagrams = 100_000_000
	datagramOffered  = 60_000_000
)

// RowsMost is how long a row may take in its cluster.
const RowsMost = 15 * time.Minute

// Steps are those of a row, in their order.
func Steps(r *row.Row) []Step {
	cni := Step{"primary CNI installed", 4 * time.Minute, nil, installCNI}
	before := Step{"pods before podweir", 3 * time.Minute, nil, podsBefore}
	install := Step{"helm install", 2 * time.Minute, nil, install}
	choice := Step{"delivery chosen", time.Minute, nil, delivery}
	doctor := Step{"doctor", time.Minute, nil, doctor}
	gone := Step{"primary CNI removed", 2 * time.Minute, nil, removeCNI}
	uninstalled := Step{"podweir uninstalled", 3 * time.Minute, nil, uninstalled}
	works := Step{"the CNI works as before", time.Minute, nil, worksAsBefore}
	churn := Step{"pods churned", 5 * time.Minute, nil, churn}
	if r.Scenario == row.Stock {
		return []Step{cni, {"stock bandwidth plugin", 3 * time.Minute, nil, stock}, gone}
	}
	steps := []Step{
		cni, before, install, choice,
		{"pods from before are limited", time.Minute, nil, limitedFromBefore},
	}
	if r.Order == row.PodweirFirst {
		install.Name, install.Do = "helm install without a CNI", upgradeOnly
		cni.Name = "primary CNI installed behind podweir"
		steps = []Step{install, cni, {"agents ready", 2 * time.Minute, nil, agentsReady}, choice, {"pods", 3 * time.Minute, nil, podsBehind}}
	}
	shared := []Step{}
	if r.Scenario == row.TwoShapers {
		steps = append(steps, Step{"the CNI's own limits lifted", 2 * time.Minute, nil, ownLimitsLifted})
		shared = []Step{
			{"endpoint changed in a flood", 2 * time.Minute, nil, endpointChanged},
			{"limits left to the CNI", 3 * time.Minute, nil, leftToTheCNI},
		}
	}
	steps = append(steps, doctor, Step{"limits", 3 * time.Minute, nil, limits})
	steps = append(steps, shared...)
	steps = append(
		steps,
		Step{"light flow beside bulk", time.Minute, nil, lightFlow},
		Step{"the CNI changed under load", 8 * time.Minute, cniChanges, cniChanged},
		Step{"policy enforced", 2 * time.Minute, policyEngine, policyEnforced},
		Step{"annotation changed", time.Minute, nil, annotationChanged},
		Step{"pod made while the agent hangs", time.Minute, plugin, agentStopped},
		Step{"podweir's agent killed", 2 * time.Minute, nil, agentKilled},
		Step{"the CNI's agent killed", 4 * time.Minute, cniAgent, cniAgentKilled},
		Step{"conflist rewritten", 2 * time.Minute, plugin, conflistRewritten},
		Step{"policy changed under load", 2 * time.Minute, policyEngine, policyChanged},
	)
	if r.Scenario == row.TwoInterfaces {
		steps = append(steps, Step{"second network", 2 * time.Minute, byCNI, secondNetwork},
			Step{"second interface of the CNI", 4 * time.Minute, bySecondCall, cniInterfaces})
	}
	return append(
		steps, churn,
		Step{"podweir upgraded under load", 2 * time.Minute, nil, upgraded},
		Step{"node restarted", 4 * time.Minute, nil, nodeRestarted},
		uninstalled, works, gone,
	)
}

// without is the reason to leave a step out where the CNI is no T.
func without[T any](reason string) func(*Run) string {
	return func(r *Run) string {
		if _, ok := r.CNI.(T); ok {
			return ""
		}
		return reason
	}
}

var (
	policyEngine = without[cnis.Policy]("the row has no policy engine")
	cniAgent     = without[cnis.Agent]("the CNI has no process on the node")
	bySecondCall = without[cnis.TwoInterfaces]("a second CNI call makes the interface")
)

func byCNI(r *Run) string {
	if bySecondCall(r) == "" {
		return "the CNI makes the second interface"
	}
	return ""
}

func cniChanges(r *Run) string {
	if c, ok := r.CNI.(cnis.Changes); !ok || len(c.Changes()) == 0 {
		return "the CNI of the row stays as it is"
	}
	return ""
}

func plugin(r *Run) string {
	if r.Row.Delivery == "nri" {
		return "with nri, no plugin of podweir shapes pods: the runtime calls the agent, whatever is in the CNI's file"
	}
	return ""
}

// installCNI returns when nodes are ready.
func installCNI(ctx context.Context, r *Run) {
	step.OK(r.CNI.Install(ctx, r.Cluster))
	r.cniReady(ctx)
}

func (r *Run) cniReady(ctx context.Context) {
	eventually(ctx, "the primary CNI is ready", func(ctx context.Context) { step.OK(r.CNI.Ready(ctx, r.Cluster)) })
	_, err := r.Cluster.Kubectl(ctx, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout=90s")
	step.OK(expect("nodes are ready", err))
}

// removeCNI leaves the cluster as it was without a CNI.
func removeCNI(ctx context.Context, r *Run) {
	r.deleteAll(ctx)
	r.keepWords(ctx, "cni", r.cniLog)
	step.OK(r.CNI.Uninstall(ctx, r.Cluster))
}

func mbit(bits float64) string { return fmt.Sprintf("%.2f", bits/1e6) }
