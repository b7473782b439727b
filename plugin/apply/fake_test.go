// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

const (
	netnsPath = "/run/netns/pod"
	podIndex  = 5
	hostIndex = 9
)

// bigTCP is what another party has given to the pod's device.
var bigTCP = attach.Offload{GSO: 196_608, GSOIPv4: 131_072}

var errBoom = errors.New("boom")

// world is a node with one pod: interfaces, kernel and store in one, and a log
// of what was done to it.
type world struct {
	iface attach.Interface
	// usurper is the device that has taken the name of iface, nil if none has.
	usurper *attach.Interface
	facts   shaping.Facts
	tcx     bool

	devices    map[terms.Side]*attach.Device
	dataplanes map[terms.Direction]*attach.Dataplane
	// former are the slots that programs use beside those.
	former   map[terms.Direction]*attach.Dataplane
	records  map[attach.ID]map[string]*apply.Record
	storeErr error
	// holdersErr is that of [world.Find] and [world.Another] for other devices.
	holdersErr error

	lastID    uint32
	lastMajor uint16
	log       []string
	// pacing of the pod's namespace, nil if the kernel has no sysctls for it.
	pacing *shaping.Pacing
	// noIFB is what stands in the place of an ifb.
	noIFB string
	// failAt makes the action of this kind fail after it was done by half.
	failAt attach.ActionKind
	locked bool
	// deadline is the one that was set last.
	deadline time.Time
}

func newWorld() *world {
	w := &world{
		iface: attach.Interface{
			NetNSPath: netnsPath, NetNSInode: 1, PodName: "eth0", PodIndex: podIndex,
			HostName: "veth1", HostIndex: hostIndex, MTU: 1500,
		},
		facts: shaping.Facts{TBF: true, HTB: true, IFB: true, MTU: 1500},
		tcx:   true, lastID: 100, lastMajor: 0x100,
		dataplanes: make(map[terms.Direction]*attach.Dataplane),
		former:     make(map[terms.Direction]*attach.Dataplane),
		records:    make(map[attach.ID]map[string]*apply.Record),
	}
	w.devices = map[terms.Side]*attach.Device{
		terms.SidePod:  {Exists: true, Index: podIndex, Name: "eth0", MTU: 1500, Offload: bigTCP},
		terms.SideHost: {Exists: true, Index: hostIndex, Name: "veth1", MTU: 1500, Offload: bigTCP},
	}
	return w
}

func (w *world) executor() *apply.Executor {
	e := apply.New(w, w, func() uint16 { w.lastMajor++; return w.lastMajor })
	e.Step = func(name string) { w.log = append(w.log, name) }
	return e
}

// Find implements apply.Kernel.
func (w *world) Find(path, name string) (attach.Interface, error) {
	if path != netnsPath || name != "eth0" {
		return attach.Interface{}, fmt.Errorf("no interface %q in %s: %w", name, path, cmp.Or(w.holdersErr, apply.ErrGone))
	}
	if w.usurper != nil {
		return *w.usurper, nil
	}
	return w.iface, nil
}

// Again implements apply.Kernel.
func (w *world) Again(i *attach.Interface) (attach.Interface, error) {
	if i.NetNSPath != netnsPath || !i.Same(&w.iface) {
		return attach.Interface{}, fmt.Errorf("%s in %s: %w", i.PodName, i.NetNSPath, apply.ErrGone)
	}
	now := w.iface
	now.PodName = i.PodName
	return now, nil
}

// Left implements apply.Kernel.
func (w *world) Left(*attach.Interface) (string, error) { return "", nil }

// Outward implements apply.Kernel.
func (w *world) Outward(path string) ([]attach.Interface, error) {
	iface, err := w.Find(path, "eth0")
	return []attach.Interface{iface}, err
}

// Facts implements apply.Kernel.
func (w *world) Facts(attach.Interface) (shaping.Facts, bool, error) { return w.facts, w.tcx, nil }

// Kept implements apply.Store.
func (w *world) Kept(id attach.ID) (attach.ID, error) {
	for other := range w.records {
		if other.ContainerID == id.ContainerID && other.IfName == id.IfName {
			return other, nil
		}
	}
	return id, nil
}

// Lock implements apply.Store.
func (w *world) Lock(context.Context, attach.ID) (func(), error) {
	if w.locked {
		return nil, errors.New("locked twice")
	}
	w.locked = true
	return func() { w.locked = false }, nil
}

// Records implements apply.Store.
func (w *world) Records(id attach.ID) ([]*apply.Record, error) {
	var all []*apply.Record
	for _, r := range w.records[id] {
		copied := *r
		all = append(all, &copied)
	}
	return all, w.storeErr
}

// Another implements apply.Store. There is one attachment here.
func (w *world) Another(_ attach.ID, i *attach.Interface) (*apply.Record, error) {
	if i.PodIndex == podIndex {
		return nil, nil
	}
	return nil, w.holdersErr
}

// Hold implements apply.Store.
func (w *world) Hold(*apply.Record) error { return nil }

// Write implements apply.Store.
func (w *world) Write(r *apply.Record) error {
	b, err := r.Marshal()
	if err != nil {
		return err
	}
	if plain, _ := json.Marshal(r); !bytes.Equal(b, plain) {
		return fmt.Errorf("the record is %s, and package encoding/json makes it %s", b, plain)
	}
	kept, err := apply.UnmarshalRecord(b)
	if err != nil {
		return err
	}
	if w.records[r.ID] == nil {
		w.records[r.ID] = make(map[string]*apply.Record)
	}
	w.records[r.ID][r.Interface.PodName] = kept
	return nil
}

// Remove implements apply.Store.
func (w *world) Remove(id attach.ID, i *attach.Interface) error {
	if i != nil {
		delete(w.records[id], i.PodName)
	}
	if i == nil || len(w.records[id]) == 0 {
		delete(w.records, id)
	}
	return nil
}

// Observe implements apply.Kernel.
func (w *world) Observe(r *apply.Record) (*attach.Observed, error) {
	obs := &attach.Observed{
		Devices:    make(map[terms.Side]*attach.Device),
		Dataplanes: make(map[terms.Direction]*attach.Dataplane),
		Recorded:   make(map[terms.Direction]bool),
		Left:       make(map[terms.Direction]bool),
		NoIFB:      w.noIFB,
	}
	if w.pacing != nil {
		obs.Pacing = new(*w.pacing)
	}
	for _, d := range terms.Directions {
		_, obs.Recorded[d] = r.Choices[d]
	}
	for s, d := range w.devices {
		copied := *d
		copied.Hooks = slices.Clone(d.Hooks)
		obs.Devices[s] = &copied
	}
	for d, dp := range w.dataplanes {
		copied := *dp
		obs.Dataplanes[d] = &copied
	}
	for d, former := range w.former {
		obs.Left[d] = former != nil
	}
	return obs, nil
}

// SetDeadline implements apply.Kernel.
func (w *world) SetDeadline(t time.Time) { w.deadline = t }

// Do implements apply.Kernel.
func (w *world) Do(r *apply.Record, a attach.Action) error {
	err := w.do(r, a)
	if err == nil && a.Kind == w.failAt {
		return errBoom
	}
	return err
}

func (w *world) do(r *apply.Record, a attach.Action) error {
	if a.Kind == attach.TearDown {
		w.tearDown(r, a.Direction)
		return nil
	}
	p := a.State.Params
	switch a.Kind {
	case attach.MakeIFB:
		if w.devices[terms.SideIFB] == nil {
			w.devices[terms.SideIFB] = &attach.Device{Exists: true, Index: int(w.id()), Name: "podweir5"}
		}
		ifb := w.devices[terms.SideIFB]
		ifb.Down, ifb.Offload = false, w.devices[terms.SideHost].Offload
	case attach.LoadDataplane, attach.UpdateDataplane:
		w.configure(a.Direction, p)
	case attach.BuildTree, attach.ChangeTree:
		return w.setTree(a, p)
	case attach.LimitOffload:
		w.devices[terms.SidePod].Offload = *a.State.Offload
	case attach.PaceTCP:
		*w.pacing = *a.State.Pacing
	case attach.ReplaceClassifier:
		w.devices[p.Side].Classifier = w.program(a.Direction, p.ProgramName())
	case attach.AttachHook:
		return w.hook(r, a, p.Side, p.Hook, a.State.HookKind, p.ProgramName())
	case attach.AttachGuard:
		return w.hook(r, a, terms.SidePod, terms.HookEgress, a.State.GuardKind, "pw_guard")
	case attach.AttachCeiling:
		return w.hook(r, a, p.CeilingSide(), terms.HookIngress, a.State.CeilingKind, "pw_ceiling")
	case attach.AttachRedirect:
		return w.hook(r, a, terms.SidePod, terms.HookIngress, terms.HookKindClsact, "pw_redirect")
	case attach.RemoveStray:
		w.removeStray(r, a)
	case attach.RenewSlot:
		w.former[a.Direction] = w.dataplanes[a.Direction]
		delete(w.dataplanes, a.Direction)
	case attach.FreeSlot:
		delete(w.former, a.Direction)
	case attach.TearDown, attach.LetGo:
	}
	return nil
}

func (w *world) removeStray(r *apply.Record, a attach.Action) {
	for s, dev := range w.devices {
		dev.Hooks = slices.DeleteFunc(dev.Hooks, func(h attach.HookProgram) bool {
			return h.Ours && terms.DirectionAt(s, h.Hook) == a.Direction && !a.State.Keeps(s, &h)
		})
		dropClsact(r, s, dev)
		if dev.OwnTree && !a.State.KeepsRoot(s) {
			dev.Tree, dev.Classifier, dev.OwnTree = shaping.Tree{}, nil, false
		}
	}
	if !a.State.KeepsIFB() {
		delete(w.devices, terms.SideIFB)
	}
}

func (w *world) id() uint32 { w.lastID++; return w.lastID }

// configure gives a direction a slot, if it has none, and its limits.
func (w *world) configure(d terms.Direction, p *shaping.Params) {
	if !p.NeedsSlot() {
		delete(w.dataplanes, d)
		return
	}
	dp := w.dataplanes[d]
	if dp == nil {
		dp = &attach.Dataplane{}
		w.dataplanes[d] = dp
	}
	if dp.Slot == 0 {
		dp.Slot = w.id()
	}
	dp.ProgramName, dp.Side, dp.Datapath = p.ProgramName(), p.Side, p.Datapath
	if dp.RedirectIndex = 0; p.Redirect {
		dp.RedirectIndex = w.devices[terms.SideIFB].Index
	}
}

// program is one of this build for the slot of a direction.
func (w *world) program(d terms.Direction, name string) *attach.HookProgram {
	return &attach.HookProgram{ProgramID: w.id(), Name: name, Ours: true, Current: true, Slot: w.dataplanes[d].Slot}
}

func (w *world) setTree(a attach.Action, p *shaping.Params) error {
	dev := w.devices[p.Side]
	if dev == nil {
		return fmt.Errorf("no device on the %v side", p.Side)
	}
	if a.Kind == attach.ChangeTree {
		if _, inPlace := attach.TreeDiff(p.Tree, &dev.Tree); !inPlace {
			return errors.New("tree cannot be changed in place")
		}
	}
	dev.Tree = shaping.Tree{Qdiscs: slices.Clone(p.Tree.Qdiscs), Classes: slices.Clone(p.Tree.Classes), Filter: p.Tree.Filter}
	dev.Classifier, dev.OwnTree = nil, true
	if p.Tree.Filter != nil {
		dev.Classifier = w.program(a.Direction, p.ProgramName())
	}
	return nil
}

func (w *world) hook(r *apply.Record, a attach.Action, s terms.Side, h terms.Hook, k terms.HookKind, name string) error {
	dev := w.devices[s]
	if dev == nil {
		return fmt.Errorf("%v: no device on the %v side", a, s)
	}
	if w.dataplanes[a.Direction] == nil {
		return fmt.Errorf("%v: no slot", a)
	}
	dev.Hooks = slices.DeleteFunc(dev.Hooks, func(p attach.HookProgram) bool {
		return p.Hook == h && p.Name == name
	})
	prog := *w.program(a.Direction, name)
	prog.Kind, prog.Hook = k, h
	if k == terms.HookKindTCX {
		dev.Hooks = slices.Insert(dev.Hooks, 0, prog)
		dropClsact(r, s, dev)
		return nil
	}
	dev.Clsact = true
	dev.Hooks = append(dev.Hooks, prog)
	return nil
}

// dropClsact removes the clsact qdisc that podweir made, if no filter is on it.
func dropClsact(r *apply.Record, s terms.Side, dev *attach.Device) {
	on := slices.ContainsFunc(dev.Hooks, func(p attach.HookProgram) bool { return p.Kind == terms.HookKindClsact })
	dev.Clsact = dev.Clsact && (on || !r.MadeClsact(s))
}

func (w *world) tearDown(r *apply.Record, d terms.Direction) {
	choice := r.Choices[d]
	for s, dev := range w.devices {
		if s == terms.SideIFB {
			if d == terms.Ingress {
				delete(w.devices, s)
			}
			continue
		}
		dev.Hooks = slices.DeleteFunc(dev.Hooks, func(p attach.HookProgram) bool {
			return p.Ours && terms.DirectionAt(s, p.Hook) == d
		})
		dropClsact(r, s, dev)
		if root := dev.Root(); root != nil && (slices.Contains(choice.Majors, uint16(uint32(root.Handle)>>16)) || dev.OwnTree && s == attach.QueueSide(d)) {
			dev.OwnTree = false
			dev.Tree, dev.Classifier = shaping.Tree{}, nil
		}
	}
	if choice.Offload != nil {
		w.devices[attach.QueueSide(d)].Offload = *choice.Offload
	}
	if w.pacing != nil {
		*w.pacing = choice.GivenBack(*w.pacing)
	}
	delete(w.dataplanes, d)
}

// shape is what is in a world, without the numbers that are drawn.
func (w *world) shape() map[string][]string {
	out := make(map[string][]string)
	for s, dev := range w.devices {
		var is []string
		for i := range dev.Tree.Qdiscs {
			q := &dev.Tree.Qdiscs[i]
			is = append(is, fmt.Sprintf("%s rate %d limit %d", q.Kind, q.Rate, q.Limit))
		}
		var hooks []string
		for _, h := range dev.Hooks {
			hooks = append(hooks, fmt.Sprintf("%v %v %s", h.Kind, h.Hook, h.Name))
		}
		slices.Sort(hooks)
		is = append(is, hooks...)
		if o := dev.Offload; o != bigTCP && s == terms.SidePod {
			is = append(is, fmt.Sprintf("packets up to %v", max(o.GSO, o.GSOIPv4)))
		}
		if s == terms.SidePod && w.pacing != nil && *w.pacing != kernelPacing {
			is = append(is, w.pacing.String())
		}
		if dev.Clsact {
			is = append(is, "clsact")
		}
		out[s.String()] = is
	}
	for d, dp := range w.dataplanes {
		out[d.String()] = []string{dp.ProgramName, fmt.Sprint(dp.Slot != 0), fmt.Sprint(dp.RedirectIndex != 0)}
	}
	return out
}

// drift is the plan for an interface whose record asks for cfg.
func drift(w *world, cfg *shaping.Config, r *apply.Record) ([]attach.Action, error) {
	asks := *r
	asks.Config = *cfg
	in, err := w.executor().Inspect(&asks)
	if err != nil {
		return nil, err
	}
	return in.Plan, nil
}
