// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
)

const (
	netnsPath = "/run/netns/pod"
	podIndex  = 5
	hostIndex = 9
)

var errBoom = errors.New("boom")

// world is a node with one pod: interfaces, kernel and store in one, and a log
// of what was done to it.
type world struct {
	iface attach.Interface
	facts shaping.Facts
	tcx   bool

	devices    map[shaping.Side]*attach.Device
	dataplanes map[shaping.Direction]*attach.Dataplane
	records    map[attach.ID]map[string]*attach.Record
	storeErr   error

	lastID    uint32
	lastMajor uint16
	log       []string
	// failAt makes the action of this kind fail after it was done by half.
	failAt attach.ActionKind
	locked bool
}

func newWorld() *world {
	w := &world{
		iface: attach.Interface{
			NetNSPath: netnsPath, NetNSInode: 1, PodName: "eth0", PodIndex: podIndex,
			HostName: "veth1", HostIndex: hostIndex, MTU: 1500,
		},
		facts: shaping.Facts{TBF: true, HTB: true, IFB: true, MTU: 1500},
		tcx:   true, lastID: 100, lastMajor: 0x100,
		dataplanes: make(map[shaping.Direction]*attach.Dataplane),
		records:    make(map[attach.ID]map[string]*attach.Record),
	}
	w.devices = map[shaping.Side]*attach.Device{
		shaping.SidePod:  {Exists: true, Index: podIndex, Name: "eth0"},
		shaping.SideHost: {Exists: true, Index: hostIndex, Name: "veth1"},
	}
	return w
}

func (w *world) engine() *attach.Engine {
	return &attach.Engine{
		Interfaces: w, Store: w, Kernel: w,
		Random: func() uint16 { w.lastMajor++; return w.lastMajor },
		Step:   func(name string) { w.log = append(w.log, name) },
	}
}

// Find implements attach.Interfaces.
func (w *world) Find(path, name string) (attach.Interface, error) {
	if path != netnsPath || name != "eth0" {
		return attach.Interface{}, fmt.Errorf("no interface %q in %s: %w", name, path, attach.ErrGone)
	}
	return w.iface, nil
}

// Facts implements attach.Interfaces.
func (w *world) Facts(attach.Interface) (shaping.Facts, bool, error) { return w.facts, w.tcx, nil }

// Lock implements attach.Store.
func (w *world) Lock(context.Context, attach.ID) (func(), error) {
	if w.locked {
		return nil, errors.New("locked twice")
	}
	w.locked = true
	return func() { w.locked = false }, nil
}

// Records implements attach.Store.
func (w *world) Records(id attach.ID) ([]*attach.Record, error) {
	var all []*attach.Record
	for _, r := range w.records[id] {
		copied := *r
		all = append(all, &copied)
	}
	return all, w.storeErr
}

// Write implements attach.Store.
func (w *world) Write(r *attach.Record) error {
	b, err := r.Marshal()
	if err != nil {
		return err
	}
	kept, err := attach.UnmarshalRecord(b)
	if err != nil {
		return err
	}
	if w.records[r.ID] == nil {
		w.records[r.ID] = make(map[string]*attach.Record)
	}
	w.records[r.ID][r.Interface.PodName] = kept
	return nil
}

// Remove implements attach.Store.
func (w *world) Remove(id attach.ID, name string) error {
	if name != "" {
		delete(w.records[id], name)
	}
	if name == "" || len(w.records[id]) == 0 {
		delete(w.records, id)
	}
	return nil
}

// Observe implements attach.Kernel.
func (w *world) Observe(r *attach.Record) (*attach.Observed, error) {
	obs := &attach.Observed{
		Devices:    make(map[shaping.Side]*attach.Device),
		Dataplanes: make(map[shaping.Direction]*attach.Dataplane),
		Recorded:   make(map[shaping.Direction]bool),
	}
	for _, d := range shaping.Directions {
		_, obs.Recorded[d] = r.Choices[d.String()]
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
	return obs, nil
}

// Prepare implements attach.Kernel.
func (w *world) Prepare(*attach.Record, []attach.Action) {}

// Do implements attach.Kernel.
func (w *world) Do(r *attach.Record, a attach.Action) error {
	err := w.do(r, a)
	if err == nil && a.Kind == w.failAt {
		return errBoom
	}
	return err
}

func (w *world) do(r *attach.Record, a attach.Action) error {
	if a.Kind == attach.TearDown {
		w.tearDown(r, a.Direction)
		return nil
	}
	p := a.State.Params
	switch a.Kind {
	case attach.MakeIFB:
		if ifb := w.devices[shaping.SideIFB]; ifb != nil {
			ifb.Down = false
			return nil
		}
		w.devices[shaping.SideIFB] = &attach.Device{Exists: true, Index: int(w.id()), Name: "podweir5"}
	case attach.LoadDataplane, attach.ReloadDataplane:
		w.load(a.Direction, p)
	case attach.UpdateDataplane:
		w.dataplanes[a.Direction].Datapath = p.Datapath
		if p.Redirect {
			w.dataplanes[a.Direction].RedirectIndex = w.devices[shaping.SideIFB].Index
		}
	case attach.BuildTree, attach.ChangeTree:
		return w.setTree(a, p)
	case attach.ReplaceClassifier:
		w.devices[p.Side].FilterProgramID = w.dataplanes[a.Direction].ProgramID
	case attach.AttachHook:
		return w.hook(a, p.Side, p.Hook, a.State.HookKind, w.dataplanes[a.Direction].ProgramID, p.ProgramName())
	case attach.AttachGuard:
		return w.hook(a, shaping.SidePod, shaping.HookEgress, shaping.HookKindClsact,
			w.dataplanes[a.Direction].GuardID, "pw_guard")
	case attach.AttachCeiling:
		return w.hook(a, shaping.SideHost, shaping.HookIngress, shaping.HookKindTCX, w.dataplanes[a.Direction].CeilingID, "pw_ceiling")
	case attach.AttachRedirect:
		return w.hook(a, shaping.SidePod, shaping.HookIngress, shaping.HookKindClsact,
			w.dataplanes[a.Direction].RedirectID, "pw_redirect")
	case attach.TearDown:
	}
	return nil
}

func (w *world) id() uint32 { w.lastID++; return w.lastID }

func (w *world) load(d shaping.Direction, p *shaping.Params) {
	dp := &attach.Dataplane{ProgramName: p.ProgramName(), Datapath: p.Datapath}
	if dp.ProgramName != "" {
		dp.ProgramID = w.id()
	}
	if p.Guard {
		dp.GuardID = w.id()
	}
	if p.Ceiling {
		dp.CeilingID = w.id()
	}
	if p.Redirect {
		dp.RedirectID, dp.RedirectIndex = w.id(), w.devices[shaping.SideIFB].Index
	}
	w.dataplanes[d] = dp
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
	dev.FilterProgramID = 0
	if p.Tree.Filter != nil {
		dev.FilterProgramID = w.dataplanes[a.Direction].ProgramID
	}
	return nil
}

func (w *world) hook(a attach.Action, s shaping.Side, h shaping.Hook, k shaping.HookKind, id uint32, name string) error {
	dev := w.devices[s]
	if dev == nil {
		return fmt.Errorf("%v: no device on the %v side", a, s)
	}
	if id == 0 {
		return fmt.Errorf("%v: %s is not loaded", a, name)
	}
	dev.Hooks = slices.DeleteFunc(dev.Hooks, func(p attach.HookProgram) bool {
		return p.Kind == k && p.Hook == h && p.Name == name
	})
	prog := attach.HookProgram{Kind: k, Hook: h, ProgramID: id, Name: name}
	if k == shaping.HookKindTCX {
		dev.Hooks = slices.Insert(dev.Hooks, 0, prog)
		return nil
	}
	dev.Clsact = true
	dev.Hooks = append(dev.Hooks, prog)
	return nil
}

func (w *world) tearDown(r *attach.Record, d shaping.Direction) {
	choice := r.Choices[d.String()]
	dp := w.dataplanes[d]
	for s, dev := range w.devices {
		if s == shaping.SideIFB {
			if d == shaping.Ingress {
				delete(w.devices, s)
			}
			continue
		}
		if dp != nil {
			dev.Hooks = slices.DeleteFunc(dev.Hooks, func(p attach.HookProgram) bool {
				return slices.Contains(dp.Programs(), p.ProgramID)
			})
		}
		if r.MadeClsact(s) && !slices.ContainsFunc(dev.Hooks, func(p attach.HookProgram) bool {
			return p.Kind == shaping.HookKindClsact
		}) {
			dev.Clsact = false
		}
		if root := dev.Root(); root != nil && slices.Contains(choice.Majors, uint16(uint32(root.Handle)>>16)) {
			dev.Tree, dev.FilterProgramID = shaping.Tree{}, 0
		}
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
		if dev.Clsact {
			is = append(is, "clsact")
		}
		out[s.String()] = is
	}
	for d, dp := range w.dataplanes {
		out[d.String()] = []string{dp.ProgramName, fmt.Sprint(dp.GuardID != 0), fmt.Sprint(dp.RedirectID != 0), fmt.Sprint(dp.CeilingID != 0)}
	}
	return out
}
