// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// ActionKind is one kind of step between what is there and what should be.
type ActionKind uint8

// The kinds, in the order in which a direction takes them. A queue comes
// before the program that classifies for it, so that no stamp is set that
// nothing obeys.
const (
	// MakeIFB makes the ifb that holds the ingress queue, and sets it up.
	MakeIFB ActionKind = iota + 1
	// LoadDataplane takes a slot in the slab for a direction and writes the limits.
	LoadDataplane
	// UpdateDataplane changes the limits in the slot.
	UpdateDataplane
	// BuildTree makes the qdiscs.
	BuildTree
	// ChangeTree changes the parameters of running qdiscs in place.
	ChangeTree
	// LimitOffload bounds the packets that TCP in the pod makes.
	LimitOffload
	// PaceTCP sets by what TCP in the pod sizes its packets.
	PaceTCP
	// ReplaceClassifier gives the filter of running qdiscs its program.
	ReplaceClassifier
	// AttachHook attaches the classifier, stamper or policer.
	AttachHook
	// AttachGuard attaches the program that clears foreign priorities.
	AttachGuard
	// AttachRedirect attaches the redirect to the ifb.
	AttachRedirect
	// AttachCeiling attaches the ceiling behind the queue, at the other end of the pair.
	AttachCeiling
	// RemoveStray removes queues and programs of podweir's that are of no use to a
	// direction as it should be.
	RemoveStray
	// RenewSlot leaves a direction's slot to the programs that use it, so that others get one of
	// their own: until they are there, the former keep to the former limits.
	RenewSlot
	// FreeSlot gives back the slot that was left.
	FreeSlot
	// TearDown removes all that a direction has, hooks first.
	TearDown
	// LetGo gives back the slot and the pins of a direction, and leaves what is on the devices: another
	// attachment has the interface.
	LetGo
)

var actionNames = map[ActionKind]string{
	MakeIFB: "make-ifb", LoadDataplane: "load", UpdateDataplane: "update",
	BuildTree: "build-queue", ChangeTree: "change-queue", LimitOffload: "limit-offload", PaceTCP: "pace-tcp", ReplaceClassifier: "replace-classifier", AttachHook: "attach",
	AttachGuard: "attach-guard", AttachRedirect: "attach-redirect",
	AttachCeiling: "attach-ceiling", RemoveStray: "remove-stray",
	RenewSlot: "renew-slot", FreeSlot: "free-slot", TearDown: "tear-down", LetGo: "let-go",
}

func (k ActionKind) String() string { return actionNames[k] }

// Action is one step, with the difference that asks for it.
type Action struct {
	Kind      ActionKind
	Direction terms.Direction
	// State is what should be there; nil for TearDown of a direction that is
	// no longer wanted.
	State  *DirectionState
	Reason string
	// Tree is the queue that ChangeTree finds, nil for other kinds.
	Tree *shaping.Tree
	// OtherBuild says that what is there is podweir's, but of another build or for
	// another slot.
	OtherBuild bool
}

func (a Action) String() string {
	return fmt.Sprintf("%v %v: %s", a.Direction, a.Kind, a.Reason)
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

// Plan returns the steps from what is observed to what is desired; it is empty
// exactly when nothing differs.
func Plan(want *Desired, obs *Observed) []Action {
	var plan []Action
	for _, d := range terms.Directions {
		ds := want.Directions[d]
		if ds == nil {
			if obs.Dataplanes[d] != nil || obs.Recorded[d] {
				plan = append(plan, Action{
					Kind: TearDown, Direction: d, Reason: "attached, but no limit is requested",
				})
			} else if left := obs.strays(d, nil); left != "" {
				plan = append(plan, Action{Kind: TearDown, Direction: d, Reason: left + ": of no use"})
			}
			continue
		}
		p := directionPlan{direction: d, state: ds, obs: obs}
		p.run()
		plan = append(plan, p.actions...)
	}
	if !slices.ContainsFunc(plan, func(a Action) bool { return !a.Kind.makes() }) {
		// Queues are made before the clsact qdisc of the same device, which may be for the other direction.
		// While a device has clsact, each change of its queue waits for RCU, with RTNL held.
		slices.SortStableFunc(plan, func(a, b Action) int { return cmp.Compare(a.Kind.stage(), b.Kind.stage()) })
	}
	return plan
}

// makes says that a step makes something new and changes nothing. Such steps of the two directions can be
// taken in any order.
func (k ActionKind) makes() bool {
	return k == LoadDataplane || k == BuildTree || k == LimitOffload || k == PaceTCP || k.stage() > 0
}

// stage is 1 for a step that puts a program on a hook, which needs what the other steps make, else 0.
func (k ActionKind) stage() int {
	if k == AttachHook || k == AttachGuard || k == AttachCeiling {
		return 1
	}
	return 0
}

type directionPlan struct {
	direction terms.Direction
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
	if p.leaves() {
		p.add(TearDown, chainBehind, p.obs.Device(terms.SidePod).Name)
		p.obs = p.obs.without(p.direction)
		have = &Dataplane{}
	}
	if params.Side == terms.SideIFB {
		p.planIFB()
	}
	p.planSlot(have)
	p.planTree(have)
	p.planOffload()
	p.planHooks(have)
	if strays := p.obs.strays(p.direction, p.state); strays != "" {
		p.add(RemoveStray, "%s: of no use", strays)
	}
}

func (p *directionPlan) planIFB() {
	ifb := p.obs.Device(terms.SideIFB)
	switch {
	case !ifb.Exists:
		p.add(MakeIFB, "no ifb in the pod's namespace")
	case ifb.Down:
		p.add(MakeIFB, "%s is down and loses every packet", ifb.Name)
	case ifb.Offload.cuts(p.obs.Device(terms.SideHost).Offload):
		p.add(MakeIFB, "%s cuts packets of more than %v, and the pod's peer sends them", ifb.Name, ifb.Offload.least())
	}
}

// leaves says that the redirect has to go at once.
func (p *directionPlan) leaves() bool {
	return p.direction == terms.Ingress && !p.state.Params.Redirect && p.obs.Hides()
}

func (p *directionPlan) planSlot(have *Dataplane) {
	params, ifb := p.state.Params, p.obs.Device(terms.SideIFB)
	switch {
	case !params.NeedsSlot():
	case have.Slot == 0:
		p.add(LoadDataplane, "no slot for %s", cmp.Or(params.ProgramName(), "the ceiling"))
	case have.Datapath == (image.Config{}):
		p.add(UpdateDataplane, "the slot has no limits of this build")
	case datapathDiff(&params.Datapath, &have.Datapath) != "":
		p.add(UpdateDataplane, "%s", datapathDiff(&params.Datapath, &have.Datapath))
	case params.Redirect && (!ifb.Exists || ifb.Index != have.RedirectIndex):
		p.add(UpdateDataplane, "redirect goes to ifindex %d, which is not the ifb", have.RedirectIndex)
	}
}

func (p *directionPlan) planTree(have *Dataplane) {
	params := p.state.Params
	if params.Tree == nil {
		return
	}
	dev := p.obs.Device(params.Side)
	diff, inPlace := TreeDiff(params.Tree, &dev.Tree)
	if !inPlace {
		p.add(BuildTree, "%s: %s", called(dev, params.Side), cmp.Or(params.Replaces, diff))
		return
	}
	if diff != "" {
		p.add(ChangeTree, "%s: %s", dev.Name, diff)
		p.actions[len(p.actions)-1].Tree = &dev.Tree
	}
	if params.Tree.Filter == nil {
		return
	}
	if differs := p.differs(dev.Classifier, params.ProgramName(), have); differs != "" {
		p.add(ReplaceClassifier, "%s: classifier %s", dev.Name, differs)
		p.markOther(dev.Classifier, params.ProgramName())
	}
}

func (p *directionPlan) planOffload() {
	dev, want := p.obs.Device(QueueSide(p.direction)), p.state.Offload
	if want != nil && dev.Offload != *want {
		p.add(LimitOffload, "%s: TCP makes packets of up to %v, want %v", dev.Name, dev.Offload.GSO, want.GSO)
	}
	if now, want := p.obs.Pacing, p.state.Pacing; want != nil && *now != *want {
		p.add(PaceTCP, "the pod's namespace has %v, want %v", now, want)
	}
}

// differs says what is wrong with a program of podweir's, "" if nothing is.
func (p *directionPlan) differs(is *HookProgram, name string, have *Dataplane) string {
	switch {
	case is == nil:
		return fmt.Sprintf("is missing, want %s", name)
	case is.Name != name:
		return fmt.Sprintf("is program %q (%d), want %s", is.Name, is.ProgramID, name)
	case !is.Current:
		return fmt.Sprintf("%s (%d) is of another build, or over maps whose pins were lost", is.Name, is.ProgramID)
	case name == guardName:
		return ""
	case have.Slot == 0:
		// What stands there is on its way out: the kernel detaches a link some time
		// after its last pin is gone.
		return fmt.Sprintf("%s (%d) has no slot yet", is.Name, is.ProgramID)
	case is.Slot != have.Slot:
		return fmt.Sprintf("%s (%d) uses slot %d, want %d", is.Name, is.ProgramID, is.Slot, have.Slot)
	}
	return ""
}

// markOther says of the last step that it replaces a program of podweir's own.
func (p *directionPlan) markOther(is *HookProgram, name string) {
	p.actions[len(p.actions)-1].OtherBuild = is != nil && is.Name == name
}

func (p *directionPlan) planHooks(have *Dataplane) {
	params := p.state.Params
	pod := p.obs.Device(terms.SidePod)
	if params.Hook == terms.HookEgress || params.Hook == terms.HookIngress {
		p.planOn(&hooked{AttachHook, params.ProgramName(), p.obs.Device(params.Side), params.Side, params.Hook, p.state.HookKind}, have)
	}
	if params.Guard {
		p.planOn(&hooked{AttachGuard, guardName, pod, terms.SidePod, terms.HookEgress, p.state.GuardKind}, have)
	}
	if params.Redirect && !pod.redirects(p.obs.Device(terms.SideIFB).Index) {
		p.planOn(&hooked{AttachRedirect, redirectName, pod, terms.SidePod, terms.HookIngress, terms.HookKindClsact}, have)
	}
	if params.HasCeiling() {
		side := params.CeilingSide()
		p.planOn(&hooked{AttachCeiling, ceilingName, p.obs.Device(side), side, terms.HookIngress, p.state.CeilingKind}, have)
	}
}

// Keeps says whether a program of podweir's on a hook belongs to what should be.
func (s *DirectionState) Keeps(side terms.Side, h *HookProgram) bool {
	p := s.Params
	switch {
	case side == p.Side && h.Hook == p.Hook && h.Name == p.ProgramName():
		return true
	case side == p.CeilingSide() && h.Hook == terms.HookIngress && h.Name == ceilingName:
		return p.HasCeiling()
	case side != terms.SidePod:
		return false
	case h.Hook == terms.HookEgress:
		return p.Guard && h.Name == guardName
	default:
		return p.Redirect && (h.Name == redirectName || h.RedirectIndex != 0)
	}
}

// KeepsRoot says whether a root qdisc of podweir's on a side belongs to what should
// be, or to the other direction.
func (s *DirectionState) KeepsRoot(side terms.Side) bool {
	return side != QueueSide(s.Params.Direction) || s.Params.Tree != nil && s.Params.Side == side
}

// KeepsIFB says that the ifb belongs to what should be, or to the other direction.
func (s *DirectionState) KeepsIFB() bool {
	return s.Params.Direction != terms.Ingress || s.Params.Side == terms.SideIFB
}

// strays names what podweir has left on a device for a direction and does not need there:
// the record of it was lost, or another party moved it. state is nil if nothing is needed.
func (o *Observed) strays(d terms.Direction, state *DirectionState) string {
	var all []string
	for _, side := range []terms.Side{terms.SidePod, terms.SideHost, terms.SideIFB} {
		dev := o.Device(side)
		for i := range dev.Hooks {
			h := &dev.Hooks[i]
			if h.Ours && terms.DirectionAt(side, h.Hook) == d && (state == nil || !state.Keeps(side, h)) {
				all = append(all, fmt.Sprintf("%s (%d) on the %v hook of %s", h.Name, h.ProgramID, h.Hook, dev.Name))
			}
		}
		if root := dev.OwnRoot(); root != nil && side == QueueSide(d) && (state == nil || !state.KeepsRoot(side)) {
			all = append(all, fmt.Sprintf("%s on %s", describeTree(root, &dev.Tree), dev.Name))
		}
	}
	if ifb := o.Device(terms.SideIFB); ifb.Exists && state != nil && !state.KeepsIFB() {
		all = append(all, "device "+ifb.Name)
	}
	return strings.Join(all, ", ")
}

// called is the name of a device; an ifb that is to be made has none yet.
func called(d *Device, s terms.Side) string { return cmp.Or(d.Name, "the "+s.String()) }

// hooked is a program that should be on a hook that others can use.
type hooked struct {
	action ActionKind
	name   string
	dev    *Device
	side   terms.Side
	hook   terms.Hook
	kind   terms.HookKind
}

func (p *directionPlan) planOn(want *hooked, have *Dataplane) {
	dev := want.dev
	found, count := dev.find(want.hook, want.name)
	if found == nil {
		p.add(want.action, "%s is not on the %v hook of %s", want.name, want.hook, called(dev, want.side))
		return
	}
	if differs := p.differs(found, want.name, have); differs != "" {
		p.add(want.action, "on the %v hook of %s %s", want.hook, dev.Name, differs)
		p.markOther(found, want.name)
		return
	}
	chain := dev.Chain(want.side, want.hook)
	if found.Kind != want.kind {
		reason := fmt.Sprintf("%s is on %v, want %v", want.name, found.Kind, want.kind)
		if other := chain.FirstOther(); other != nil {
			reason += fmt.Sprintf(" because of %v on the %v hook of %s", *other, want.hook, dev.Name)
		}
		p.add(want.action, "%s", reason)
		return
	}
	if count > 1 {
		// An interrupted move between filter and link left both, which charge twice.
		p.add(want.action, "%s is on the %v hook of %s twice", want.name, want.hook, dev.Name)
		return
	}
	if stands := chain.Stand(found.ProgramID, nil); found.Kind == terms.HookKindTCX && len(stands.Ahead) > 0 {
		p.add(want.action, "%v is ahead of %s on the %v hook of %s", stands.Ahead[0], want.name, want.hook, dev.Name)
	}
}
