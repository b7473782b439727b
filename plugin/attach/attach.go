// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package attach compares what should be on a pod's interface with what is
// there and plans the actions between them; ADD, CHECK, repair and status
// share that one plan.
package attach

import (
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/shaping"
)

// ID names one attachment: the state key of everything podweir makes.
type ID struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

func (id ID) String() string {
	return fmt.Sprintf("network %q container %q interface %q", id.Network, id.ContainerID, id.IfName)
}

// Interface is one interface of a pod, seen from both ends.
type Interface struct {
	NetNSPath string `json:"netns"`
	// NetNSInode tells the namespace apart from a later one at the same path.
	NetNSInode uint64 `json:"netnsInode"`
	PodName    string `json:"podName"`
	PodIndex   int    `json:"podIndex"`
	// Kind is the kernel's name of the device kind, such as veth or netkit.
	Kind string `json:"kind,omitempty"`
	// HostName and HostIndex are zero where the interface has no other end on
	// the host.
	HostName  string `json:"hostName,omitempty"`
	HostIndex int    `json:"hostIndex,omitempty"`
	// MTU is the L3 MTU in bytes.
	MTU    int  `json:"mtu"`
	L3Only bool `json:"l3Only,omitempty"`
}

// HookProgram is a BPF program on a hook of a device.
type HookProgram struct {
	Kind      shaping.HookKind
	Hook      shaping.Hook
	ProgramID uint32
	Name      string
	// Pref and FilterHandle are the position of a clsact filter.
	Pref         uint16
	FilterHandle uint32
	// RedirectIndex is where the filter's mirred action sends to, 0 if it has
	// none.
	RedirectIndex int
}

// Device is one device as it is.
type Device struct {
	Exists bool
	Index  int
	Name   string
	// Tree holds every qdisc, class and filter below the root; a qdisc of the
	// kernel's own (noqueue) is left out.
	Tree shaping.Tree
	// FilterProgramID is the program of the classifier on Tree.Filter.
	FilterProgramID uint32
	// Hooks are the programs of all parties, in the order they run.
	Hooks []HookProgram
	// Clsact says that the device has a clsact qdisc.
	Clsact bool
	// Down says that an ifb was set down: what is redirected to it is lost.
	Down bool
	// NetfilterIngress says that a netfilter ingress chain stands behind our
	// redirect, or that this could not be found out.
	NetfilterIngress bool
}

// Root returns the root qdisc, nil if the device has the kernel's own.
func (d *Device) Root() *shaping.Qdisc {
	for i := range d.Tree.Qdiscs {
		if d.Tree.Qdiscs[i].Parent == shaping.RootParent {
			return &d.Tree.Qdiscs[i]
		}
	}
	return nil
}

// find returns the program with this id on a hook, nil if it is not there.
func (d *Device) find(hook shaping.Hook, programID uint32) *HookProgram {
	for i := range d.Hooks {
		if d.Hooks[i].Hook == hook && d.Hooks[i].ProgramID == programID {
			return &d.Hooks[i]
		}
	}
	return nil
}

// firstOther returns whom of other parties a hook asks first, nil if nobody
// else is there.
func (d *Device) firstOther(hook shaping.Hook) *HookProgram {
	for i := range d.Hooks {
		if d.Hooks[i].Hook == hook && !Ours(d.Hooks[i].Name) {
			return &d.Hooks[i]
		}
	}
	return nil
}

// redirects says whether everything on the ingress hook goes to an ifb, by the
// program with this id or by a mirred action.
func (d *Device) redirects(programID uint32, ifb int) bool {
	for i := range d.Hooks {
		h := &d.Hooks[i]
		if h.Hook == shaping.HookIngress && ifb != 0 &&
			(h.RedirectIndex == ifb || programID != 0 && h.ProgramID == programID) {
			return true
		}
	}
	return false
}

// Dataplane is what the pins of one direction hold.
type Dataplane struct {
	// Program and the ids are of the pinned programs, 0 where none is pinned.
	ProgramName string
	ProgramID   uint32
	GuardID     uint32
	RedirectID  uint32
	CeilingID   uint32
	// Outdated says which program or maps are not of this build, "" if all are.
	// Maps of another layout leave Datapath empty.
	Outdated string
	Datapath shaping.Datapath
	// RedirectIndex is the ifindex that the redirect sends to.
	RedirectIndex int
}

// Programs are the ids of the pinned programs.
func (d *Dataplane) Programs() []uint32 {
	all := []uint32{d.ProgramID, d.GuardID, d.RedirectID, d.CeilingID}
	return slices.DeleteFunc(all, func(id uint32) bool { return id == 0 })
}

// Observed is all that is on one interface.
type Observed struct {
	Devices    map[shaping.Side]*Device
	Dataplanes map[shaping.Direction]*Dataplane
	// Recorded are the directions that an earlier run set up or began to.
	Recorded map[shaping.Direction]bool
}

// without is what will be there after a direction is torn down: the devices
// that are not ours, without what is ours of that direction on them.
func (o *Observed) without(d shaping.Direction) *Observed {
	out := &Observed{
		Devices: make(map[shaping.Side]*Device), Dataplanes: make(map[shaping.Direction]*Dataplane),
	}
	queueSide := shaping.SidePod
	if d == shaping.Ingress {
		queueSide = shaping.SideHost
	}
	for s, dev := range o.Devices {
		left := *dev
		if s == queueSide {
			left.Tree, left.FilterProgramID = shaping.Tree{}, 0
		}
		if s != shaping.SideIFB || d == shaping.Egress {
			out.Devices[s] = &left
		}
	}
	for other, dp := range o.Dataplanes {
		if other != d {
			out.Dataplanes[other] = dp
		}
	}
	return out
}

// Device returns the device of a side, an absent one if there is none.
func (o *Observed) Device(s shaping.Side) *Device {
	if d := o.Devices[s]; d != nil {
		return d
	}
	return &Device{}
}

// redirectName is the name of our redirect's filter.
const redirectName = ProgramPrefix + "redirect"

// hides says that a redirect of ours takes packets away from a netfilter
// ingress chain. It may be one that nothing is pinned of any more.
func (o *Observed) hides() bool {
	pod := o.Device(shaping.SidePod)
	if !pod.NetfilterIngress {
		return false
	}
	named := slices.ContainsFunc(pod.Hooks, func(h HookProgram) bool {
		return h.Hook == shaping.HookIngress && h.Name == redirectName
	})
	return named || pod.redirects(0, o.Device(shaping.SideIFB).Index)
}

// Desired is what should be on one interface.
type Desired struct {
	Interface  Interface
	Directions map[shaping.Direction]*DirectionState
}

// DirectionState is what should be there for one direction: parameters with
// every choice made.
type DirectionState struct {
	Params *shaping.Params
	// HookKind is Params.HookKind with auto resolved.
	HookKind shaping.HookKind
}
