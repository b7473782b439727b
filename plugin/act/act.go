// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package act takes the steps of a plan on one interface of a pod: each by datapath, queue
// and hostif, on devices that the caller has found.
package act

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Device is one device of a pod, with what reaches it.
type Device struct {
	Handle *hostif.Handle
	Index  int
	NS     *rtnl.NetNS
	Side   terms.Side
	// Seen is what the last look found, and Look looks again.
	Seen *Seen
	Look func() (*attach.Device, error)
}

// Seen is what of a device the steps after a look have to know.
type Seen struct {
	// NoRoot says that it had no root qdisc but the kernel's own, NoClsact that it had
	// no clsact qdisc.
	NoRoot, NoClsact bool

	// madeClsact says that podweir made a clsact qdisc since.
	madeClsact bool
}

// Devices finds devices, and keeps what all interfaces share.
type Devices interface {
	// Device returns a device by what the record says, nil if its namespace is gone. Whether
	// it is still there its first use tells.
	Device(r *apply.Record, s terms.Side) (*Device, error)
	// Present is Device for one that is there and still the interface's, nil if it is not. The
	// error wraps [hostif.ErrForeignDevice] if something else has the name of the ifb.
	Present(r *apply.Record, s terms.Side) (*Device, error)
	// Mirred says that packets reach an ifb by a mirred action alone.
	Mirred() (bool, error)
	// Write pins a record that was corrected.
	Write(r *apply.Record) error
}

// Interface is one interface of a pod, as the steps reach it.
type Interface struct {
	Devices Devices
	Slab    *datapath.Slab
	Record  *apply.Record
	// Pins is the directory of its pins.
	Pins string
	// NodeNS is the node's own namespace, in which nobody's sysctls are changed.
	NodeNS *rtnl.NetNS
	// LeaveIFB leaves the ifb to its namespace.
	LeaveIFB bool
}

// Do takes one step.
func (i *Interface) Do(a attach.Action) error {
	switch a.Kind {
	case attach.MakeIFB:
		return i.makeIFB()
	case attach.LoadDataplane, attach.UpdateDataplane:
		return i.configure(a.State.Params)
	case attach.BuildTree:
		return i.buildTree(a.State.Params)
	case attach.ChangeTree:
		return i.changeTree(a.State.Params)
	case attach.LimitOffload:
		return i.limitOffload(a.Direction, a.State.Offload)
	case attach.PaceTCP:
		return i.pace(*a.State.Pacing)
	case attach.ReplaceClassifier:
		return i.replaceClassifier(a.State.Params)
	case attach.AttachRedirect:
		return i.attachRedirect()
	case attach.AttachHook, attach.AttachGuard, attach.AttachCeiling:
		return i.attach(hookingOf(a.Kind, a.State))
	case attach.RemoveStray:
		return i.removeStray(a.State)
	case attach.RenewSlot:
		return i.Slab.Leave(i.Pins, a.Direction)
	case attach.FreeSlot:
		return i.Slab.GiveBackLeft(i.Pins, a.Direction, i.Record.Interface.HostIndex)
	case attach.TearDown:
		return i.TearDown(a.Direction)
	case attach.LetGo:
		return errors.Join(i.unlink(a.Direction), i.giveSlotBack(a.Direction))
	default:
		return fmt.Errorf("no such action: %v", a.Kind)
	}
}

var errGone = errors.New("device is gone")

// device is [Devices.Device] for a step that needs it.
func (i *Interface) device(s terms.Side) (*Device, error) {
	d, err := i.Devices.Device(i.Record, s)
	if err == nil && d == nil {
		err = fmt.Errorf("%v side of %s in %s: %w", s, i.Record.Interface.PodName, i.Record.Interface.NetNSPath, errGone)
	}
	return d, err
}

func (i *Interface) makeIFB() error {
	pod, err := i.device(terms.SidePod)
	if err != nil {
		return err
	}
	dev, err := pod.Handle.InterfaceByIndex(pod.Index)
	if err != nil {
		return err
	}
	// It has to take what the peer sends: the pod's own device may be bounded for what
	// the pod sends.
	if host, err := i.Devices.Device(i.Record, terms.SideHost); err == nil && host != nil {
		if peer, err := host.Handle.InterfaceByIndex(host.Index); err == nil {
			dev.GSOMaxSize, dev.GSOIPv4MaxSize = peer.GSOMaxSize, peer.GSOIPv4MaxSize
		}
	}
	_, err = pod.Handle.EnsureIFB(dev)
	return err
}

// ifbIndex is 0 if there is no ifb.
func (i *Interface) ifbIndex() (int, error) {
	d, err := i.Devices.Device(i.Record, terms.SideIFB)
	if err != nil || d == nil {
		return 0, err
	}
	return d.Index, nil
}

// configure gives a direction its slot and its limits.
func (i *Interface) configure(p *shaping.Params) error {
	index := 0
	if p.Redirect {
		var err error
		if index, err = i.ifbIndex(); err != nil {
			return err
		}
	}
	return i.Slab.Configure(i.Pins, p, i.subnets(), index)
}

func (i *Interface) subnets() []netip.Prefix {
	if c := &i.Record.Config; len(c.Unshaped) == 0 {
		return c.Shaped
	}
	return i.Record.Config.Unshaped
}

// limitOffload is for sockets that connect from now on; the others have a copy.
func (i *Interface) limitOffload(d terms.Direction, o *attach.Offload) error {
	dev, err := i.device(attach.QueueSide(d))
	if err != nil {
		return err
	}
	return dev.setOffload(o)
}

func (d *Device) setOffload(o *attach.Offload) error {
	return d.Handle.SetGSOMaxSize(d.Index, uint32(o.GSO), uint32(o.GSOIPv4))
}

// classifier is the program for the filter of a tree, with the slot of the
// direction; it is nothing if the tree has no filter.
func (i *Interface) classifier(p *shaping.Params) (queue.Classifier, error) {
	if p.Tree.Filter == nil {
		return queue.Classifier{}, nil
	}
	return i.filterProgram(p.Direction, p.ProgramName())
}

// filterProgram is a program for a filter, with the slot of a direction.
func (i *Interface) filterProgram(d terms.Direction, name string) (queue.Classifier, error) {
	program, err := i.Slab.Program(name, datapath.ByClassID)
	if err != nil {
		return queue.Classifier{}, err
	}
	slot, err := i.Slab.Stamp(i.Pins, d, i.subnets())
	return queue.Classifier{ProgramFD: program.FD(), Name: name, Slot: uint16(slot)}, err
}

// buildTree makes the queue again. What is in the way is our own, or Decide had
// the operator's word to replace it. Only then is it looked for: on a node full
// of pods that takes longer than all the rest.
func (i *Interface) buildTree(p *shaping.Params) error {
	dev, err := i.device(p.Side)
	if err != nil {
		return err
	}
	program, err := i.classifier(p)
	if err != nil {
		return err
	}
	err = queue.Build(dev.Handle, dev.Index, p.Tree, program)
	if !errors.Is(err, queue.ErrForeignRoot) {
		return err
	}
	if dev.Seen.NoRoot && !i.Record.ReplaceQdisc { // it came since
		return fmt.Errorf("%w: %w", attach.ErrForeignQdisc, err)
	}
	return queue.Replace(dev.Handle, dev.Index, p.Tree, program)
}

func (i *Interface) changeTree(p *shaping.Params) error {
	dev, err := i.device(p.Side)
	if err != nil {
		return err
	}
	have, err := queue.Observe(dev.Handle, dev.Index)
	if err != nil {
		return err
	}
	err = queue.Change(dev.Handle, dev.Index, &have.Tree, p.Tree)
	if errors.Is(err, queue.ErrRebuild) {
		// It is not as it was when the step was planned.
		return i.buildTree(p)
	}
	return err
}

func (i *Interface) replaceClassifier(p *shaping.Params) error {
	dev, err := i.device(p.Side)
	if err != nil {
		return err
	}
	program, err := i.classifier(p)
	if err != nil {
		return err
	}
	return queue.ReplaceClassifier(dev.Handle, dev.Index, p.Tree.Filter, program)
}

// The sysctls of [shaping.Pacing].
const (
	rttLogSysctl      = "net/ipv4/tcp_tso_rtt_log"
	minSegmentsSysctl = "net/ipv4/tcp_min_tso_segs"
)

// Pacing reads by what TCP sizes its packets in a pod's namespace: nil if the kernel lacks a
// sysctl of it (before Linux 5.18), or the namespace is the node's, where they are everybody's.
func Pacing(pod, node *rtnl.NetNS) (*shaping.Pacing, error) {
	if pod.Same(node) {
		return nil, nil
	}
	values, err := pod.ReadSysctls(rttLogSysctl, minSegmentsSysctl)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &shaping.Pacing{RTTLog: values[0], MinSegments: values[1]}, nil
}

// givePacingBack undoes pace.
func (i *Interface) givePacingBack(c *attach.Choice) error {
	pod, err := i.Devices.Device(i.Record, terms.SidePod)
	if pod == nil || err != nil {
		return err
	}
	now, err := Pacing(pod.NS, i.NodeNS)
	if now == nil || err != nil {
		return err
	}
	return i.pace(c.GivenBack(*now))
}

// pace sets the two sysctls by which TCP in the pod sizes its packets. They apply to open
// connections, too.
func (i *Interface) pace(want shaping.Pacing) error {
	pod, err := i.Devices.Device(i.Record, terms.SidePod)
	if pod == nil || err != nil || pod.NS.Same(i.NodeNS) {
		return err
	}
	err = pod.NS.WriteSysctls(rtnl.Sysctl{Name: rttLogSysctl, Value: want.RTTLog}, rtnl.Sysctl{Name: minSegmentsSysctl, Value: want.MinSegments})
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil // the limit holds without it, and whoever looks sees the difference
	}
	return err
}
