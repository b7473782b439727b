// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"reflect"
	"slices"

	"github.com/podweir/podweir/plugin/terms"
)

// drifted tells what differs for no reason of ours.
func (e *Engine) drifted(id ID, prior, rec *Record, gone []terms.Direction, plan []Action) {
	if e.Drifted == nil || prior == nil || !reflect.DeepEqual(prior.Config, rec.Config) {
		return
	}
	left := slices.DeleteFunc(slices.Clone(plan), func(a Action) bool {
		return slices.Contains(gone, a.Direction) || a.OtherBuild || ours(a.Direction, plan)
	})
	if len(left) > 0 {
		e.Drifted(id, left)
	}
}

// ours says that a direction gets a slot: with another release, or because another way
// is taken. What else differs is due to that.
func ours(d terms.Direction, plan []Action) bool {
	return slices.ContainsFunc(plan, func(a Action) bool {
		return a.Direction == d && a.Kind == LoadDataplane
	})
}

// InPod says that what the step puts back was in the pod's namespace, within reach of
// a process in the pod that has CAP_NET_ADMIN.
func (a *Action) InPod() bool {
	switch a.Kind {
	case MakeIFB, AttachGuard, AttachRedirect:
		return true
	case BuildTree, ChangeTree, ReplaceClassifier, AttachHook:
		return a.State != nil && a.State.Params.Side != terms.SideHost
	default:
		return false
	}
}
