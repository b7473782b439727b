// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package attach compares what should be on a pod's interface with what is
// there and plans the actions between them; ADD, CHECK, repair and status
// share that one plan. It asks nobody and changes nothing: package apply does.
package attach

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// ID names one attachment: the state key of everything podweir makes.
type ID struct {
	// Network is the name of the network that it was made for, an attribute: see
	// [ID.Same].
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// Same says that it is the same attachment, whatever its network is called: within a
// container no two interfaces have one name.
func (id ID) Same(other ID) bool {
	return id.ContainerID == other.ContainerID && id.IfName == other.IfName
}

func (id ID) String() string {
	return fmt.Sprintf("network %q container %q interface %q", id.Network, id.ContainerID, id.IfName)
}

// Interface is one interface of a pod, seen from both ends.
type Interface struct {
	NetNSPath string `json:"netns"`
	// NetNSInode tells the namespace apart from a later one at the same path.
	NetNSInode uint64 `json:"netnsInode"`
	// NetNSCookie is the kernel's number of the namespace, which it never gives
	// again before the next boot, as it does with inodes.
	NetNSCookie uint64 `json:"netnsCookie,omitempty"`
	// PodName is the name of the device when it was attached, NowName its name now
	// if that is another.
	PodName string `json:"podName"`
	NowName string `json:"nowName,omitempty"`
	// NamesakeIndex is the ifindex of another device in the pod that has the name PodName
	// now and leads to the host, 0 if there is none: no limit covers it.
	NamesakeIndex int              `json:"namesakeIndex,omitempty"`
	PodIndex      int              `json:"podIndex"`
	Kind          terms.DeviceKind `json:"kind,omitempty"`
	// HostName and HostIndex are zero where the interface has no other end on
	// the host.
	HostName  string `json:"hostName,omitempty"`
	HostIndex int    `json:"hostIndex,omitempty"`
	// HostNetNSCookie is NetNSCookie of the namespace with that end: the node's.
	HostNetNSCookie uint64 `json:"hostNetnsCookie,omitempty"`
	// MTU is the L3 MTU in bytes.
	MTU    int  `json:"mtu"`
	L3Only bool `json:"l3Only,omitempty"`
	// Unseen says that packets come to it past its ingress hooks, so that nothing limits ingress.
	Unseen bool `json:"unseen,omitempty"`
}

// Uncovered says that another device than the limited one carries the pod's traffic under
// the interface's name, "" if none does.
func (i *Interface) Uncovered() string {
	if i.NamesakeIndex == 0 {
		return ""
	}
	was := "gone"
	if i.NowName != "" {
		was = "called " + i.NowName
	}
	return fmt.Sprintf("%s (ifindex %d) is another device now, which no limit covers; the limited one is %s", i.PodName, i.NamesakeIndex, was)
}

// Name is the name that the device has now.
func (i *Interface) Name() string { return cmp.Or(i.NowName, i.PodName) }

// IsKind says whether a device of this kind can be the interface. Its number alone does not
// tell: the kernel gives it to other devices, too.
func (i *Interface) IsKind(kind terms.DeviceKind) bool { return i.Kind == "" || i.Kind == kind }

// Same says whether both are one interface of one namespace.
func (i *Interface) Same(other *Interface) bool {
	if i.PodIndex != other.PodIndex || other.Kind != "" && !i.IsKind(other.Kind) {
		return false
	}
	if i.NetNSCookie != 0 && other.NetNSCookie != 0 {
		return i.NetNSCookie == other.NetNSCookie
	}
	return i.NetNSInode == other.NetNSInode
}

// HookProgram is a program of any party on a hook of a device.
type HookProgram = judge.Program

// Offload are the largest packets that TCP on a device makes, in bytes.
type Offload struct {
	// GSO is gso_max_size.
	GSO units.Bytes `json:"gso"`
	// GSOIPv4 is gso_ipv4_max_size, 0 where the kernel has one for both (before 6.3).
	GSOIPv4 units.Bytes `json:"gsoIPv4,omitempty"`
}

// atMost is o where it is not more than a size.
func (o Offload) atMost(size units.Bytes) Offload {
	return Offload{GSO: min(o.GSO, size), GSOIPv4: min(o.GSOIPv4, size)}
}

// ifbOffload is what every kernel lets an ifb have, in bytes.
const ifbOffload units.Bytes = 65_536

// cuts says that an ifb segments packets that its pod's peer sends whole.
func (o Offload) cuts(peer Offload) bool {
	most := peer.atMost(ifbOffload)
	return o.GSO < most.GSO || o.GSOIPv4 < most.GSOIPv4
}

// least is the smaller of both limits.
func (o Offload) least() units.Bytes {
	if o.GSOIPv4 == 0 {
		return o.GSO
	}
	return min(o.GSO, o.GSOIPv4)
}

// Device is one device as it is.
type Device struct {
	Exists bool
	Index  int
	Name   string
	// MTU is in bytes, without the link layer header; 0 if it was not looked at.
	MTU units.Bytes
	// TxQueueLen is in packets.
	TxQueueLen int
	Offload    Offload
	// MostOffload is what the device's driver can take, in bytes; 0 if that is not known.
	MostOffload units.Bytes
	// Tree holds every qdisc, class and filter below the root; a qdisc of the
	// kernel's own (noqueue) is left out.
	Tree shaping.Tree
	// OwnTree says that Tree is of podweir's making: by its shape and its programs,
	// whether or not a record tells of it.
	OwnTree bool
	// Classifier is the program on Tree.Filter; nil if there is none.
	Classifier *HookProgram
	// Hooks are the programs of all parties, in the order they run.
	Hooks []HookProgram
	// XDP is the program that has what comes to the device before all hooks, nil if there is none.
	XDP *HookProgram
	// Clsact says that the device has a clsact qdisc, IngressOnly that it has an
	// ingress qdisc in its place, with no hook for what leaves.
	Clsact, IngressOnly bool
	// Blocks are the tc blocks of its hooks, which are another party's.
	Blocks judge.Blocks
	// Unread says why the hooks could not all be read, "" if they were.
	Unread string
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

// ownMajors are the handle majors of a tree of podweir's, in the order in which
// they are drawn: what is below a qdisc comes before the next one beside it.
func (d *Device) ownMajors() []uint16 {
	if !d.OwnTree {
		return nil
	}
	var all []uint16
	var below func(parent uint16)
	below = func(parent uint16) {
		for i := range d.Tree.Qdiscs {
			q := &d.Tree.Qdiscs[i]
			if m := major(q.Handle); m != 0 && major(q.Parent) == parent && !slices.Contains(all, m) {
				all = append(all, m)
				below(m)
			}
		}
	}
	below(major(shaping.RootParent))
	return all
}

// OwnRoot returns the root qdisc if it is podweir's, nil if not.
func (d *Device) OwnRoot() *shaping.Qdisc {
	if !d.OwnTree {
		return nil
	}
	return d.Root()
}

func major(h shaping.TCHandle) uint16 { return uint16(uint32(h) >> 16) }

// find returns the first program of podweir's with this name on a hook, nil if it
// is not there, and how often it is.
func (d *Device) find(hook terms.Hook, name string) (first *HookProgram, count int) {
	for i := range d.Hooks {
		if h := &d.Hooks[i]; h.Ours && h.Hook == hook && h.Name == name {
			first, count = cmp.Or(first, h), count+1
		}
	}
	return first, count
}

// Chain is what is on one of its hooks, for the judge. side is whose device it is.
func (d *Device) Chain(side terms.Side, hook terms.Hook) *judge.Chain {
	c := &judge.Chain{Device: d.Name, Side: side, Hook: hook, IngressOnly: d.IngressOnly, Blocks: d.Blocks, Unread: d.Unread}
	for i := range d.Hooks {
		if d.Hooks[i].Hook == hook {
			c.Programs = append(c.Programs, d.Hooks[i])
		}
	}
	return c
}

// redirects says whether a mirred action sends everything on the ingress hook to
// an ifb.
func (d *Device) redirects(ifb int) bool {
	return slices.ContainsFunc(d.Hooks, func(h HookProgram) bool {
		return h.Hook == terms.HookIngress && ifb != 0 && h.RedirectIndex == ifb
	})
}

// Dataplane is what one direction has in the slab.
type Dataplane struct {
	// Slot is the number of its slot, 0 if it has none yet.
	Slot uint32
	// ProgramName is the program that the slot is for, "" if only for a ceiling or
	// a redirect.
	ProgramName string
	// Side is the device that the program is for, 0 if that is not known.
	Side terms.Side
	// Build is the release that wrote the limits.
	Build string
	// Datapath is empty if the slot has no limits that this build understands.
	Datapath image.Config
	// RedirectIndex is the ifindex that the redirect sends to.
	RedirectIndex int
}

// QueueSide is the device of a pod's interface whose root qdisc is the queue of a
// direction, if that is not on an ifb.
func QueueSide(d terms.Direction) terms.Side {
	if d == terms.Egress {
		return terms.SidePod
	}
	return terms.SideHost
}

// Observed is all that is on one interface.
type Observed struct {
	Devices    map[terms.Side]*Device
	Dataplanes map[terms.Direction]*Dataplane
	// Recorded are the directions that an earlier run set up or began to.
	Recorded map[terms.Direction]bool
	// Left are the directions of which an interrupted run left a slot, which programs may still use.
	Left map[terms.Direction]bool
	// NoIFB says why the pod's namespace cannot have the ifb, "" if nothing was seen.
	NoIFB string
	// Pacing is by what TCP in the pod's namespace sizes its packets; nil if the kernel lacks
	// the sysctls, the namespace is the node's own, or they were not looked at.
	Pacing *shaping.Pacing
}

// without is what will be there after a direction is torn down: the devices
// that are not ours, without what is ours of that direction on them.
func (o *Observed) without(d terms.Direction) *Observed {
	out := &Observed{
		Devices: make(map[terms.Side]*Device), Dataplanes: make(map[terms.Direction]*Dataplane), Pacing: o.Pacing, NoIFB: o.NoIFB,
	}
	if d == terms.Egress && o.Pacing != nil {
		out.Pacing = &shaping.Pacing{} // whatever it was before podweir
	}
	for s, dev := range o.Devices {
		left := *dev
		left.Hooks = slices.DeleteFunc(slices.Clone(dev.Hooks), func(h HookProgram) bool {
			return h.Ours && terms.DirectionAt(s, h.Hook) == d
		})
		if s == QueueSide(d) {
			left.Tree, left.Classifier, left.OwnTree = shaping.Tree{}, nil, false
			left.Offload = Offload{} // whatever it was before podweir
		}
		if s != terms.SideIFB || d == terms.Egress {
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
func (o *Observed) Device(s terms.Side) *Device {
	if d := o.Devices[s]; d != nil {
		return d
	}
	return &Device{}
}

// Programs of podweir's beside the classifiers, as in bpf/podweir.bpf.c.
const (
	guardName    = "pw_guard"
	redirectName = "pw_redirect"
	ceilingName  = "pw_ceiling"
)

// Hides says that a redirect of ours takes packets away from a netfilter ingress chain.
func (o *Observed) Hides() bool { return o.Device(terms.SidePod).NetfilterIngress && o.redirects() }

// redirects says that a redirect of ours is on the pod's device. It may be one that nothing
// is pinned of any more.
func (o *Observed) redirects() bool {
	pod := o.Device(terms.SidePod)
	named := slices.ContainsFunc(pod.Hooks, func(h HookProgram) bool {
		return h.Ours && h.Hook == terms.HookIngress && h.Name == redirectName
	})
	return named || pod.redirects(o.Device(terms.SideIFB).Index)
}

// starved names a program or filter of others at the ingress hook of the pod's device that
// ends the chain for every packet and lets it pass: a redirect of ours runs last and sees none.
// It is "" if there is none.
func (o *Observed) starved() string {
	pod := o.Device(terms.SidePod)
	for _, other := range pod.Chain(terms.SidePod, terms.HookIngress).Others() {
		if other.Answer == judge.AnswerEnds {
			return fmt.Sprintf("%v on %s %v, before podweir's redirect", other, pod.Name, other.Answer)
		}
	}
	return ""
}

// OtherBuild says that a program of podweir's, but of another build, is attached.
func (o *Observed) OtherBuild() bool {
	other := func(h HookProgram) bool { return h.Ours && h.ProgramID != 0 && !h.Current }
	for _, dev := range o.Devices {
		if dev.Classifier != nil && other(*dev.Classifier) || slices.ContainsFunc(dev.Hooks, other) {
			return true
		}
	}
	return false
}

// Uses says whether a program on the devices uses a slot. The slot of a program in the pod is told by its
// instructions, and not known if the program is of another build. The guard has the number of a slot and reads none.
func (o *Observed) Uses(slot uint32) bool {
	uses := func(h HookProgram) bool { return h.Ours && h.Name != guardName && h.Slot == slot }
	for side, dev := range o.Devices {
		if dev.Classifier != nil && uses(*dev.Classifier) {
			return true
		}
		if slices.ContainsFunc(dev.Hooks, func(h HookProgram) bool {
			return uses(h) && (h.Current || h.Kind != terms.HookKindTCX || side == terms.SideHost)
		}) {
			return true
		}
	}
	return false
}

// Own names what podweir has on the devices, whether or not a record tells of it.
func (o *Observed) Own() []string {
	var all []string
	for _, side := range []terms.Side{terms.SidePod, terms.SideHost, terms.SideIFB} {
		dev := o.Device(side)
		if side == terms.SideIFB {
			if dev.Exists && len(all) > 0 { // DEL leaves one without a redirect to its namespace
				all = append(all, "device "+dev.Name)
			}
			continue
		}
		if root := dev.OwnRoot(); root != nil {
			all = append(all, fmt.Sprintf("%s on %s", describeTree(root, &dev.Tree), dev.Name))
		}
		for i := range dev.Hooks {
			if h := &dev.Hooks[i]; h.Ours {
				all = append(all, fmt.Sprintf("%s (%d) on the %v hook of %s", h.Name, h.ProgramID, h.Hook, dev.Name))
			}
		}
		if side == QueueSide(terms.Egress) && dev.ownOffload() {
			all = append(all, fmt.Sprintf("gso_max_size %d on %s", dev.Offload.GSO, dev.Name))
		}
	}
	return all
}

// Desired is what should be on one interface.
type Desired struct {
	Interface  Interface
	Directions map[terms.Direction]*DirectionState
}

// DirectionState is what should be there for one direction: parameters with
// every choice made.
type DirectionState struct {
	Params *shaping.Params
	// HookKind is Params.HookKind with auto resolved.
	HookKind terms.HookKind
	// CeilingKind and GuardKind are how the ceiling and the guard are attached, if there
	// is one.
	CeilingKind, GuardKind terms.HookKind
	// Offload is what the pod's device should have, nil if that is left alone.
	Offload *Offload
	// Pacing is what the pod's namespace should have, nil if that is left alone.
	Pacing *shaping.Pacing
}
