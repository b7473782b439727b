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
	// ReloadDataplane loads and pins the programs of this build in the place of
	// those of another build; what is attached is still to be replaced.
	ReloadDataplane
	// UpdateDataplane changes the limits in the running maps.
	UpdateDataplane
	// BuildTree makes the qdiscs.
	BuildTree
	// ChangeTree changes the parameters of running qdiscs in place.
	ChangeTree
	// ReplaceClassifier gives the filter of running qdiscs its program.
	ReplaceClassifier
	// AttachHook attaches the classifier, stamper or policer.
	AttachHook
	// AttachGuard attaches the program that clears foreign priorities.
	AttachGuard
	// AttachRedirect attaches the redirect to the ifb.
	AttachRedirect
	// AttachCeiling attaches the ceiling at the host side.
	AttachCeiling
	// TearDown removes all that a direction has, hooks first.
	TearDown
)

var actionNames = map[ActionKind]string{
	MakeIFB: "make-ifb", LoadDataplane: "load", ReloadDataplane: "reload", UpdateDataplane: "update",
	BuildTree: "build-queue", ChangeTree: "change-queue", ReplaceClassifier: "replace-classifier", AttachHook: "attach",
	AttachGuard: "attach-guard", AttachRedirect: "attach-redirect",
	AttachCeiling: "attach-ceiling", TearDown: "tear-down",
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
	if missing != "" && (len(have.Programs()) != 0 || p.leaves()) {
		p.add(TearDown, "%s", missing)
		p.obs = p.obs.without(p.direction)
	}
	if ifb := p.obs.Device(shaping.SideIFB); params.Side == shaping.SideIFB && !ifb.Exists {
		p.add(MakeIFB, "no ifb in the pod's namespace")
	} else if params.Side == shaping.SideIFB && ifb.Down {
		p.add(MakeIFB, "%s is down and loses every packet", ifb.Name)
	}
	programs := params.ProgramName() != "" || params.Guard || params.Redirect || params.Ceiling
	outdated := p.outdated(have)
	reloaded := programs && (missing != "" || outdated != "")
	switch {
	case !programs:
	case missing != "":
		p.add(LoadDataplane, "%s", missing)
	case reloaded:
		p.add(ReloadDataplane, "%s", outdated)
	default:
		p.planUpdate(have)
	}
	p.planTree(have, reloaded)
	p.planHook(have, reloaded)
	pod := p.obs.Device(shaping.SidePod)
	lacks := "no %s on the %v hook of %s"
	if missing == "" && reloaded {
		lacks = "the %s on the %v hook of %s is of another build"
	}
	if params.Guard && (reloaded || pod.find(shaping.HookEgress, have.GuardID) == nil) {
		p.add(AttachGuard, lacks, "guard", shaping.HookEgress, pod.Name)
	}
	redirect := have.RedirectID
	if reloaded {
		redirect = 0 // a mirred action has no program of ours, and stays
	}
	if params.Redirect && !pod.redirects(redirect, p.obs.Device(shaping.SideIFB).Index) {
		p.add(AttachRedirect, lacks, "redirect", shaping.HookIngress, pod.Name)
	}
	p.planCeiling(have, reloaded)
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
	case want == "" && params.Ceiling && have.CeilingID == 0:
		return "ceiling program is not pinned"
	}
	return ""
}

// outdated says why the pinned programs have to be loaded anew, in the place of
// those that are there.
func (p *directionPlan) outdated(have *Dataplane) string {
	if have.Outdated == "" && p.state.Params.Ceiling && have.CeilingID == 0 {
		return "ceiling program is not pinned"
	}
	return have.Outdated
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
	diff, inPlace := TreeDiff(params.Tree, &dev.Tree)
	if !inPlace {
		p.add(BuildTree, "%s: %s", dev.Name, diff)
		return
	}
	if diff != "" {
		p.add(ChangeTree, "%s: %s", dev.Name, diff)
	}
	switch {
	case params.Tree.Filter == nil:
	case reloaded:
		p.add(ReplaceClassifier, "%s: classifier is program %d of another build", dev.Name, dev.FilterProgramID)
	case dev.FilterProgramID != have.ProgramID:
		p.add(ReplaceClassifier, "%s: classifier is program %d, want %d", dev.Name, dev.FilterProgramID, have.ProgramID)
	}
}

func (p *directionPlan) planHook(have *Dataplane, reloaded bool) {
	params := p.state.Params
	if params.Hook == shaping.HookEgress || params.Hook == shaping.HookIngress {
		p.planOn(&hooked{
			action: AttachHook, name: params.ProgramName(), dev: p.obs.Device(params.Side), hook: params.Hook,
			kind: p.state.HookKind, programID: have.ProgramID,
		}, have, reloaded)
	}
}

func (p *directionPlan) planCeiling(have *Dataplane, reloaded bool) {
	if p.state.Params.Ceiling {
		p.planOn(&hooked{
			action: AttachCeiling, name: "the ceiling", dev: p.obs.Device(shaping.SideHost), hook: shaping.HookIngress,
			kind: shaping.HookKindTCX, programID: have.CeilingID,
		}, have, reloaded)
	}
}

// hooked is a program that should be on a hook that others can use.
type hooked struct {
	action    ActionKind
	name      string
	dev       *Device
	hook      shaping.Hook
	kind      shaping.HookKind
	programID uint32
}

func (p *directionPlan) planOn(want *hooked, have *Dataplane, reloaded bool) {
	dev := want.dev
	found := dev.find(want.hook, want.programID)
	switch {
	case reloaded && have.Outdated != "":
		p.add(want.action, "%s on the %v hook of %s is of another build", want.name, want.hook, dev.Name)
	case reloaded || found == nil:
		p.add(want.action, "%s is not on the %v hook of %s", want.name, want.hook, dev.Name)
	case found.Kind != want.kind:
		reason := fmt.Sprintf("%s is on %v, want %v", want.name, found.Kind, want.kind)
		if other := dev.firstOther(want.hook); other != nil {
			reason += fmt.Sprintf(" because of program %q (%d) on the %v hook of %s", other.Name, other.ProgramID, want.hook, dev.Name)
		}
		p.add(want.action, "%s", reason)
	case found.Kind == shaping.HookKindTCX:
		if first := firstTCX(dev, want.hook); first.ProgramID != want.programID {
			p.add(want.action, "program %q (%d) is ahead of %s on the %v hook of %s",
				first.Name, first.ProgramID, want.name, want.hook, dev.Name)
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
