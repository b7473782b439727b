// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"fmt"

	"github.com/podweir/podweir/plugin/shaping"
)

// ActionKind is one kind of step between what is there and what should be.
type ActionKind uint8

// The kinds, in the order in which a direction takes them. A queue comes
// before the program that classifies for it, so that no stamp is set that
// nothing obeys.
const (
	// MakeIFB makes the ifb that holds the ingress queue, and sets it up.
	MakeIFB ActionKind = iota + 1
	// LoadDataplane loads and pins the programs and maps of a direction.
	LoadDataplane
	// UpdateDataplane changes the limits in the running maps.
	UpdateDataplane
	// BuildTree makes the qdiscs.
	BuildTree
	// ChangeTree changes the parameters of running qdiscs in place.
	ChangeTree
	// AttachHook attaches the classifier, stamper or policer.
	AttachHook
	// AttachGuard attaches the program that clears foreign priorities.
	AttachGuard
	// AttachRedirect attaches the redirect to the ifb.
	AttachRedirect
	// TearDown removes all that a direction has, hooks first.
	TearDown
)

var actionNames = map[ActionKind]string{
	MakeIFB: "make-ifb", LoadDataplane: "load", UpdateDataplane: "update",
	BuildTree: "build-queue", ChangeTree: "change-queue", AttachHook: "attach",
	AttachGuard: "attach-guard", AttachRedirect: "attach-redirect", TearDown: "tear-down",
}

func (k ActionKind) String() string { return actionNames[k] }

// Action is one step, with the difference that asks for it.
type Action struct {
	Kind      ActionKind
	Direction shaping.Direction
	// State is what should be there; nil for TearDown of a direction that is
	// no longer wanted.
	State  *DirectionState
	Reason string
}

func (a Action) String() string {
	return fmt.Sprintf("%v %v: %s", a.Direction, a.Kind, a.Reason)
}

// Plan returns the steps from what is observed to what is desired; it is empty
// exactly when nothing differs.
func Plan(want *Desired, obs *Observed) []Action {
	var plan []Action
	for _, d := range shaping.Directions {
		ds := want.Directions[d]
		if ds == nil {
			if obs.Dataplanes[d] != nil || obs.Recorded[d] {
				plan = append(plan, Action{
					Kind: TearDown, Direction: d, Reason: "attached, but no limit is asked for",
				})
			}
			continue
		}
		p := directionPlan{direction: d, state: ds, obs: obs}
		p.run()
		plan = append(plan, p.actions...)
	}
	return plan
}

type directionPlan struct {
	direction shaping.Direction
	state     *DirectionState
	obs       *Observed
	actions   []Action
}

func (p *directionPlan) add(kind ActionKind, format string, args ...any) {
	p.actions = append(p.actions, Action{
		Kind: kind, Direction: p.direction, State: p.state, Reason: fmt.Sprintf(format, args...),
	})
}

func (p *directionPlan) run() {
	params := p.state.Params
	have := p.obs.Dataplanes[p.direction]
	if have == nil {
		have = &Dataplane{}
	}
	missing := p.missing(have)
	if missing != "" && (have.ProgramID+have.GuardID+have.RedirectID != 0 || p.leaves()) {
		p.add(TearDown, "%s", missing)
		p.obs = p.obs.without(p.direction)
	}
	if ifb := p.obs.Device(shaping.SideIFB); params.Side == shaping.SideIFB && !ifb.Exists {
		p.add(MakeIFB, "no ifb in the pod's namespace")
	} else if params.Side == shaping.SideIFB && ifb.Down {
		p.add(MakeIFB, "%s is down and loses every packet", ifb.Name)
	}
	programs := params.ProgramName() != "" || params.Guard || params.Redirect
	reloaded := missing != "" && programs
	switch {
	case reloaded:
		p.add(LoadDataplane, "%s", missing)
	case programs:
		p.planUpdate(have)
	}
	p.planTree(have, reloaded)
	p.planHook(have, reloaded)
	pod := p.obs.Device(shaping.SidePod)
	if params.Guard && (reloaded || pod.find(shaping.HookEgress, have.GuardID) == nil) {
		p.add(AttachGuard, "no guard on the egress hook of %s", pod.Name)
	}
	if params.Redirect && (reloaded || !pod.redirects(have.RedirectID, p.obs.Device(shaping.SideIFB).Index)) {
		p.add(AttachRedirect, "no redirect on the ingress hook of %s", pod.Name)
	}
}

// leaves says that the redirect has to go at once.
func (p *directionPlan) leaves() bool {
	return p.direction == shaping.Ingress && !p.state.Params.Redirect && p.obs.hides()
}

// missing says what keeps the pinned programs from being those that are
// wanted, "" if nothing does.
func (p *directionPlan) missing(have *Dataplane) string {
	params := p.state.Params
	switch want := params.ProgramName(); {
	case p.leaves():
		return fmt.Sprintf(chainBehind, p.obs.Device(shaping.SidePod).Name)
	case have.ProgramName != want:
		return fmt.Sprintf("program is %q, want %q", have.ProgramName, want)
	case params.Guard && have.GuardID == 0:
		return "guard program is not pinned"
	case params.Redirect && have.RedirectID == 0:
		return "redirect program is not pinned"
	}
	return ""
}

func (p *directionPlan) planUpdate(have *Dataplane) {
	params := p.state.Params
	ifb := p.obs.Device(shaping.SideIFB)
	if diff := datapathDiff(&params.Datapath, &have.Datapath); diff != "" {
		p.add(UpdateDataplane, "%s", diff)
	} else if params.Redirect && ifb.Index != have.RedirectIndex {
		p.add(UpdateDataplane, "redirect goes to ifindex %d, which is not the ifb", have.RedirectIndex)
	}
}

func (p *directionPlan) planTree(have *Dataplane, reloaded bool) {
	params := p.state.Params
	if params.Tree == nil {
		return
	}
	dev := p.obs.Device(params.Side)
	switch diff, inPlace := TreeDiff(params.Tree, &dev.Tree); {
	case diff == "" && params.Tree.Filter != nil && (reloaded || dev.FilterProgramID != have.ProgramID):
		p.add(BuildTree, "%s: classifier is program %d, want %d", dev.Name, dev.FilterProgramID, have.ProgramID)
	case diff == "":
	case inPlace:
		p.add(ChangeTree, "%s: %s", dev.Name, diff)
	default:
		p.add(BuildTree, "%s: %s", dev.Name, diff)
	}
}

func (p *directionPlan) planHook(have *Dataplane, reloaded bool) {
	params := p.state.Params
	if params.Hook != shaping.HookEgress && params.Hook != shaping.HookIngress {
		return
	}
	dev := p.obs.Device(params.Side)
	found := dev.find(params.Hook, have.ProgramID)
	switch {
	case reloaded || found == nil:
		p.add(AttachHook, "%s is not on the %v hook of %s", params.ProgramName(), params.Hook, dev.Name)
	case found.Kind != p.state.HookKind:
		reason := fmt.Sprintf("%s is on %v, want %v", params.ProgramName(), found.Kind, p.state.HookKind)
		if other := dev.firstOther(params.Hook); other != nil {
			reason += fmt.Sprintf(" because of program %q (%d) on the %v hook of %s", other.Name, other.ProgramID, params.Hook, dev.Name)
		}
		p.add(AttachHook, "%s", reason)
	case found.Kind == shaping.HookKindTCX:
		if first := firstTCX(dev, params.Hook); first.ProgramID != have.ProgramID {
			p.add(AttachHook, "program %q (%d) is ahead of %s on the %v hook of %s",
				first.Name, first.ProgramID, params.ProgramName(), params.Hook, dev.Name)
		}
	}
}

func firstTCX(dev *Device, hook shaping.Hook) HookProgram {
	for _, h := range dev.Hooks {
		if h.Kind == shaping.HookKindTCX && h.Hook == hook {
			return h
		}
	}
	return HookProgram{}
}
