// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"slices"
	"strings"
	"time"
)

// Overdue is a running pod with a limit whose network the agent cannot find.
type Overdue struct {
	// Pod is namespace/name.
	Pod    string
	Since  time.Time
	Reason string
}

// isOverdue says whether the agent looks for the network of a pod in vain.
func (f *Facts) isOverdue(pod string) bool {
	return slices.ContainsFunc(f.Overdue, func(o Overdue) bool { return o.Pod == pod })
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
