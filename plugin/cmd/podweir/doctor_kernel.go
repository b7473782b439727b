// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/order"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status"
)

// doctorKernel answers the doctor's questions about the running system. It
// looks at the namespaces that it runs in.
type doctorKernel struct {
	*options
	root string
}

// Features tries each kind of queue in a namespace of its own.
func (k *doctorKernel) Features(context.Context) (*doctor.Features, error) {
	f, err := queue.Probe()
	if err != nil {
		return nil, err
	}
	return &doctor.Features{
		TCX: profiles.Is(datapath.HaveTCX()),
		Queues: map[string]profiles.Answer{
			"tbf": profiles.Is(f.TBF), "prio": profiles.Is(f.Prio), "htb": profiles.Is(f.HTB), "fq": profiles.Is(f.FQ),
		},
	}, nil
}

// Verdicts runs copies of podweir's shared-hook programs.
func (k *doctorKernel) Verdicts(context.Context) ([]doctor.Verdict, error) {
	all, err := datapath.TestVerdicts()
	out := make([]doctor.Verdict, len(all))
	for i, v := range all {
		out[i] = doctor.Verdict{Program: v.Program, Wrong: v.Wrong}
	}
	return out, err
}

// Programs lists the programs on the pods' devices.
func (k *doctorKernel) Programs(ctx context.Context) ([]string, error) {
	devices, err := k.Devices(ctx)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, d := range devices {
		for _, p := range slices.Concat(d.In.TCX, d.In.Legacy, d.Out.TCX, d.Out.Legacy) {
			out = append(out, p.Name)
		}
	}
	return out, nil
}

// Attachments are what status shows.
func (k *doctorKernel) Attachments(ctx context.Context) ([]doctor.Attachment, error) {
	node, err := k.open()
	if errors.Is(err, cni.ErrNoState) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer node.Close()
	rep, err := collectSettled(ctx, node)
	if err != nil {
		return nil, err
	}
	var out []doctor.Attachment
	for i := range rep.Attachments {
		out = append(out, k.attachments(node, &rep.Attachments[i])...)
	}
	for _, f := range rep.Failures {
		out = append(out, doctor.Attachment{Pod: f.ID.String(), ContainerID: f.ID.ContainerID, Failure: f.Error})
	}
	return out, nil
}

// settleWait bounds how long the doctor waits for changes that are under way; its
// default checks have 2 s.
const settleWait = 500 * time.Millisecond

// collectSettled is status.Collect, once more where something differs, after
// whoever may be changing it has let go: an ADD, a DEL or a repair that is half
// done is no difference.
func collectSettled(ctx context.Context, node *cni.Node) (*status.Report, error) {
	rep, err := status.Collect(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	differs := false
	for i := range rep.Attachments {
		a := &rep.Attachments[i]
		if a.Error == "" && len(a.Drift) == 0 {
			continue
		}
		differs = true
		if unlock, err := node.Engine.Store.Lock(ctx, a.ID); err == nil {
			unlock()
		}
	}
	if !differs {
		return rep, nil
	}
	return status.Collect(node)
}

// Overdue are the pods that the agent waits for.
func (k *doctorKernel) Overdue(context.Context) ([]doctor.Overdue, error) {
	all, err := k.paths().Overdue()
	out := make([]doctor.Overdue, len(all))
	for i, o := range all {
		out[i] = doctor.Overdue{Pod: o.Pod, Since: o.Since, Reason: o.Error}
	}
	return out, err
}

func (k *doctorKernel) attachments(node *cni.Node, a *status.Attachment) []doctor.Attachment {
	if a.Error != "" {
		return []doctor.Attachment{{
			Pod: podName(a), ContainerID: a.ID.ContainerID, Device: a.Interface.HostName, Drift: []string{a.Error}, Gone: isGone(&a.Interface),
		}}
	}
	record := recordOf(node, a)
	var out []doctor.Attachment
	for i, d := range a.Directions {
		one := doctor.Attachment{
			Pod: podName(a), ContainerID: a.ID.ContainerID, Direction: d.Direction, Mode: profiles.Mode(d.Mode), Queue: d.Queue,
			By: string(a.By), Device: a.Interface.HostName, FailedOpen: counted(d.Counters, "failed-open"),
			PastQueue: counted(d.Counters, "dropped-ceiling"), NoCeiling: d.NoCeiling,
		}
		if i == 0 {
			// The plan is of the whole interface.
			one.Drift = a.Drift
		}
		if d.Direction == shaping.Ingress.String() {
			one.Place = profiles.PlaceIFB
			if d.Side == shaping.SideHost.String() {
				one.Place = profiles.PlaceHost
			}
		}
		if record != nil {
			one.Changed = changed(node.PinDir(record))
			fromRecord(node, record, &d, &one)
		}
		out = append(out, one)
	}
	return out
}

// changed is when a pin was last made or removed in a directory: now if the
// directory is gone.
func changed(dir string) time.Time {
	info, err := os.Stat(dir)
	if err != nil {
		return time.Now()
	}
	return info.ModTime()
}

// fromRecord adds what status does not show.
func fromRecord(node *cni.Node, r *attach.Record, d *status.Direction, one *doctor.Attachment) {
	if d.HookKind != "" && d.Side == shaping.SideHost.String() {
		one.Kind, one.Hook = profiles.HookKind(d.HookKind), profiles.HookDirection(d.Hook)
		// 0 if it cannot be read: then the doctor finds nothing of ours on the
		// hook, which is what it is.
		for _, direction := range shaping.Directions {
			if direction.String() != d.Direction {
				continue
			}
			if dp, err := datapath.Programs(node.PinDir(r), direction); err == nil {
				one.Program = dp.ProgramID
			}
		}
	}
	one.Redirected = d.Side == shaping.SideIFB.String()
	if !one.Redirected && d.Queue != shaping.QueueFQ.String() {
		return
	}
	obs, err := node.Engine.Kernel.Observe(r)
	if err != nil {
		one.Drift = append(one.Drift, err.Error())
		return
	}
	for side, dev := range obs.Devices {
		if root := dev.Root(); root != nil && side.String() == d.Side {
			one.Root = &doctor.RootQdisc{Kind: string(root.Kind), PacketLimit: root.PacketLimit, FlowLimit: root.FlowLimit}
		}
	}
	if !one.Redirected {
		return
	}
	for _, h := range obs.Device(shaping.SidePod).Hooks {
		if h.Hook == shaping.HookIngress && !attach.Ours(h.Name) {
			one.Ahead = append(one.Ahead, order.Program{ID: h.ProgramID, Name: h.Name, Pref: h.Pref, Handle: h.FilterHandle})
		}
	}
}

// counted sums the packets of the dispositions whose names begin so.
func counted(counters []datapath.Counter, prefix string) uint64 {
	n := uint64(0)
	for _, c := range counters {
		if strings.HasPrefix(c.Disposition, prefix) {
			n += c.Packets
		}
	}
	return n
}

// isGone says that the network namespace of an interface is no longer there.
func isGone(i *attach.Interface) bool {
	ns, err := hostif.OpenNetNS(i.NetNSPath)
	if err != nil {
		return errors.Is(err, hostif.ErrNoNetNS)
	}
	defer func() { _ = ns.Close() }()
	return ns.Inode() != i.NetNSInode
}

// recordOf is the record of an attachment that status shows, nil if it is gone
// since.
func recordOf(node *cni.Node, a *status.Attachment) *attach.Record {
	records, err := node.Engine.Store.Records(a.ID)
	if err != nil {
		return nil
	}
	for _, r := range records {
		if r.Interface == a.Interface {
			return r
		}
	}
	return nil
}

// PolicyPrograms are the pins of the AWS Network Policy Agent.
func (k *doctorKernel) PolicyPrograms(context.Context) ([]uint32, error) {
	return datapath.PinnedPrograms(filepath.Join(k.root, "sys/fs/bpf/globals/aws/programs"))
}

// Devices are the veth and netkit devices whose other end is in another
// namespace, without those that the node itself reaches others by: in a node
// that is a container, as kind's, its uplink looks as a pod's device does. What
// podweir has shaped is a pod's, whatever it looks like.
func (k *doctorKernel) Devices(context.Context) ([]doctor.Device, error) {
	own, err := k.own()
	if err != nil {
		return nil, err
	}
	ns, err := hostif.CurrentNetNS()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	h, err := hostif.NewHandle(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	all, err := h.Interfaces()
	if err != nil {
		return nil, err
	}
	uplinks, err := h.Uplinks()
	if err != nil {
		return nil, err
	}
	var out []doctor.Device
	for _, i := range all {
		if i.Kind != hostif.KindVeth && i.Kind != hostif.KindNetkit || i.PeerNetNSID == hostif.NoNetNSID {
			continue
		}
		if uplinks[i.Index] && !own.shaped[i.Name] {
			continue
		}
		d, err := own.device(h, &i)
		if errors.Is(err, hostif.ErrNoDevice) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at device %s: %w", i.Name, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// ownership tells what is podweir's.
type ownership struct {
	programs map[uint32]bool
	// majors are the handle majors of podweir's qdiscs, by host-side device.
	majors map[string][]uint16
	// shaped are the host-side devices of podweir's attachments.
	shaped map[string]bool
}

func (k *doctorKernel) own() (*ownership, error) {
	out := &ownership{programs: map[uint32]bool{}, majors: map[string][]uint16{}, shaped: map[string]bool{}}
	node, err := k.open()
	if errors.Is(err, cni.ErrNoState) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer node.Close()
	ids, err := node.List()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		records, err := node.Engine.Store.Records(id)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			out.shaped[r.Interface.HostName] = true
			for _, c := range r.Choices {
				out.majors[r.Interface.HostName] = append(out.majors[r.Interface.HostName], c.Majors...)
			}
			for _, d := range shaping.Directions {
				dp, err := datapath.Programs(node.PinDir(r), d)
				if err != nil {
					return nil, err
				}
				for _, program := range dp.Programs() {
					out.programs[program] = true
				}
			}
		}
	}
	return out, nil
}

func (own *ownership) device(h *hostif.Handle, i *hostif.Interface) (doctor.Device, error) {
	d := doctor.Device{
		Name: i.Name, Kind: profiles.DeviceKind(i.Kind.String()), Pod: i.PeerNetNSID + 1,
		In: order.Hook{Direction: profiles.HookIn}, Out: order.Hook{Direction: profiles.HookOut},
	}
	tc, err := queue.Observe(h, i.Index)
	if err != nil {
		return d, err
	}
	if tc.HookQdisc != "" {
		d.Qdiscs = append(d.Qdiscs, doctor.Qdisc{Kind: tc.HookQdisc})
	}
	for _, q := range tc.Qdiscs {
		d.Qdiscs = append(d.Qdiscs, doctor.Qdisc{
			Kind: string(q.Kind), Root: q.Parent == shaping.RootParent,
			Ours: slices.Contains(own.majors[i.Name], uint16(q.Handle>>16)),
		})
	}
	for _, f := range tc.HookFilters {
		hook := &d.In
		if f.Hook == queue.HookEgress {
			hook = &d.Out
		}
		p := order.Program{ID: f.ProgramID, Name: f.Name, Ours: own.programs[f.ProgramID], Pref: f.Pref, Handle: f.Handle}
		if f.Kind != "bpf" {
			p.Name, p.NotBPF = f.Kind, true
			// podweir's redirect on kernels where only mirred works.
			p.Ours = f.Name != "" && f.Name == queue.MirredName
		}
		if n := len(hook.Legacy); p.NotBPF && n > 0 && hook.Legacy[n-1].Name == p.Name && hook.Legacy[n-1].Pref == p.Pref {
			// u32 and others list their tables and keys as filters, too.
			continue
		}
		hook.Legacy = append(hook.Legacy, p)
	}
	programs, err := datapath.QueryTCX(i.Index)
	if err != nil {
		d.In.Unread, d.Out.Unread = err.Error(), err.Error()
	}
	for _, p := range programs {
		hook := &d.In
		if p.Hook == shaping.HookEgress {
			hook = &d.Out
		}
		hook.TCX = append(hook.TCX, order.Program{
			ID: p.ProgramID, Name: strings.TrimSpace(p.Name), Ours: own.programs[p.ProgramID],
		})
	}
	return d, nil
}
