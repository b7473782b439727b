// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply

import (
	"reflect"
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
)

// drifted tells what differs for no reason of ours.
func (e *Executor) drifted(id attach.ID, prior, rec *Record, in *attach.Inspection) {
	if e.Drifted == nil || prior == nil || !reflect.DeepEqual(prior.Config, rec.Config) {
		return
	}
	left := slices.DeleteFunc(slices.Clone(in.Steps), func(a attach.Action) bool {
		return slices.Contains(in.Remade, a.Direction) || in.Before[a.Direction].Place != in.Choices[a.Direction].Place ||
			a.OtherBuild || ours(a.Direction, in.Steps)
	})
	if len(left) > 0 {
		e.Drifted(id, left)
	}
}

// ours says that a direction gets a slot: with another release, or because another way
// is taken. What else differs is due to that.
func ours(d terms.Direction, plan []attach.Action) bool {
	return slices.ContainsFunc(plan, func(a attach.Action) bool {
		return a.Direction == d && a.Kind == attach.LoadDataplane
	})
}
