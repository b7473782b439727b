// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Facts is what the parameters depend on beside the configuration: the kernel
// and the device that gets the queue.
type Facts struct {
	// Prio, HTB, TBF and IFB say whether the kernel has the qdisc or the device
	// kind, by probe.
	Prio, HTB, TBF, IFB bool
	// NoIFB says why IFB is false, for people; "" if all that is known is that the
	// kernel has none.
	NoIFB string
	// MTU of the device in bytes, without a link header.
	MTU int
	// ClockTick is the resolution of CLOCK_MONOTONIC_COARSE, which the programs
	// read: 1 / CONFIG_HZ.
	ClockTick time.Duration
	// L3Only says that the device's packets have no Ethernet header.
	L3Only bool
	// PastHost says that packets may go past the hooks and the qdisc of the device's
	// host side. Then the queue for ingress is in the pod's namespace, unless a place
	// is requested by name.
	PastHost bool
	// Pacing says that the pod's network namespace has the sysctls of [Pacing].
	Pacing bool
	// Namespace is that of the pod in Kubernetes, whose pods are a group; "" if it is not known.
	Namespace string
}

// noIFB says why no queue can stand on an ifb.
func (f *Facts) noIFB() string {
	if f.NoIFB == "" {
		return "this kernel has no ifb (CONFIG_IFB)"
	}
	return f.NoIFB
}

// Program is the dataplane program of a direction.
type Program uint8

// The programs of bpf/podweir.bpf.c.
const (
	// ProgramNone: the queue alone does it.
	ProgramNone Program = iota + 1
	// ProgramClass answers a class on a qdisc of ours.
	ProgramClass
	// ProgramBand sets skb->priority at a shared hook.
	ProgramBand
	// ProgramPolice passes, marks or drops at a shared hook.
	ProgramPolice
)

// String is the name of the BPF entry point.
func (p Program) String() string {
	if s, ok := programNames[p]; ok {
		return s
	}
	return fmt.Sprintf("invalid(%d)", p)
}

var programNames = map[Program]string{
	ProgramNone: "none", ProgramClass: "pw_class", ProgramBand: "pw_band",
	ProgramPolice: "pw_police",
}

// SubnetsMode says what the subnets of a configuration mean; the values are
// those of enum pw_subnets_mode.
type SubnetsMode uint8

// The meanings of the subnets.
const (
	SubnetsNone SubnetsMode = iota
	// SubnetsUnshaped exempts remote addresses inside of them.
	SubnetsUnshaped
	// SubnetsShaped exempts remote addresses outside of them.
	SubnetsShaped
)

// Params is everything that has to exist for one direction of one interface.
type Params struct {
	Direction terms.Direction
	Policy    terms.Policy
	// Mode is the mode that was chosen. It stays [ModeAuto] with
	// [QueueNone], where [HookKindAuto] is decided on the device.
	Mode terms.Mode
	// Queue is the queue that was chosen, never [QueueAuto].
	Queue terms.Queue
	// Side is the device that holds the queue, the filter and the hook.
	Side terms.Side
	// Tree is the queue; nil with [QueueNone]. Replaces says how it differs from podweir's queue that
	// stands there and gives way to it, "" if none does.
	Tree     *Tree
	Replaces string
	Program  Program
	// Exempt says that there are subnets beside the limit.
	Exempt   bool
	Hook     terms.Hook
	HookKind terms.HookKind
	// Guard asks for the program at pod-side egress that clears a preset
	// skb->priority. It is needed where a qdisc of ours that obeys
	// skb->priority stands on the pod side and our program is its filter:
	// HTB and prio look at skb->priority before they ask a filter. A program
	// at the shared hook overwrites skb->priority itself.
	Guard bool
	// NoGuard says why one that is needed is not available. Notes have it too.
	NoGuard string
	// Redirect asks for the redirect from pod-side ingress to the ifb.
	Redirect bool
	// Ceiling asks for the meter of what leaves the pod at the host side, which
	// the pod cannot reach.
	Ceiling bool
	// NoCeiling says why one that was requested is not available. Notes have it too.
	NoCeiling string
	// GroupCeiling asks for the meter of the group's limit behind the queue, which holds while
	// nobody divides. NoGroupCeiling says why there is none. Notes have it too.
	GroupCeiling   bool
	NoGroupCeiling string
	// Datapath is what the programs read, without what only the writer knows: the ABI version and the
	// index of the ifb. Units and ranges of its fields stand in struct pw_config of bpf/lib/abi.h.
	Datapath image.Config
	// Rate is the cap.
	Rate units.BitRate
	// Group is what the pods of the group have together, 0 if there is no group.
	Group units.BitRate
	// Divided says that the queue has a share of Group, which the agent changes all the time:
	// [Divider] has what changes with it.
	Divided bool
	// NoShare says why the queue has no share of Group, or would have none if its limit were not
	// observed only; "" without a group.
	NoShare string
	// BurstBytes is what may leave back to back after idle: the bucket of the
	// TBF, or the credit of a policer.
	BurstBytes units.Bytes
	// OffloadBytes is the largest packet that TCP in the pod shall give to the device,
	// its headers included; 0 leaves it to the device.
	OffloadBytes units.Bytes
	// Paced makes TCP in the pod size its packets by [Pacing], in place of OffloadBytes.
	Paced bool
	// DepthBytes is the depth of the heavy band; 0 with [QueueNone].
	DepthBytes units.Bytes
	// MaxWait is how long a heavy packet waits at most; 0 with [QueueNone].
	MaxWait time.Duration
	// CapHolds says that in any window t at most cap*t + burst + one packet
	// pass of what the policy charges.
	CapHolds bool
	// Allowance is what the device may carry.
	Allowance Allowance
	// Declined say what was requested by name and is not available, why, and what is
	// used instead. Notes have it too.
	Declined []string
	// Kept are settings that another party chose in place of what podweir would set, as
	// name=value. Notes have them too.
	Kept []string
	// Notes say in words why auto chose what it chose, and what does not hold.
	Notes []string
}

// Decline records that something which was requested by name is not used.
func (p *Params) Decline(note string) {
	p.Declined = append(p.Declined, note)
	p.Notes = append(p.Notes, note)
}

// LeaveCeiling records why there is no ceiling, and none of the group with it.
func (p *Params) LeaveCeiling(why string) {
	if p.Ceiling {
		p.leaveOwnCeiling(why)
	}
	if p.GroupCeiling {
		p.leaveGroupCeiling(why)
	}
}

func (p *Params) leaveOwnCeiling(why string) {
	p.Ceiling, p.NoCeiling = false, why
	p.Notes = append(p.Notes, "no egress ceiling: "+why)
}

func (p *Params) leaveGroupCeiling(why string) {
	p.GroupCeiling, p.NoGroupCeiling = false, why
	p.Notes = append(p.Notes, "no ceiling of the group: "+why)
}

// HasCeiling says that a program behind the queue meters, for the pod or for its group.
func (p *Params) HasCeiling() bool { return p.Ceiling || p.GroupCeiling }

// CeilingSide is the device on whose ingress hook the ceiling is: the other end of the pair.
func (p *Params) CeilingSide() terms.Side {
	if p.Direction == terms.Egress {
		return terms.SideHost
	}
	return terms.SidePod
}

// NeedsSlot says that a program of the direction has limits to look up.
func (p *Params) NeedsSlot() bool { return p.ProgramName() != "" || p.Redirect || p.HasCeiling() }

// LeaveGuard records why there is no guard.
func (p *Params) LeaveGuard(why string) {
	p.Guard, p.NoGuard = false, why+": a process in the pod that sets skb->priority chooses its band"
	p.Notes = append(p.Notes, "no guard: "+p.NoGuard)
}

// Observes says that the limit is measured only, and that nothing is held to it.
func (p *Params) Observes() bool { return p.Datapath.Observe != 0 }

// Limit is the limit as it is told, without what the pod asked for.
func (p *Params) Limit() terms.Limit {
	enforce := terms.EnforceLimit
	if p.Observes() {
		enforce = terms.EnforceObserve
	}
	return terms.Limit{
		Direction: terms.Name(p.Direction), Rate: p.Rate, Burst: p.BurstBytes, Enforce: terms.Name(enforce), Policy: terms.Name(p.Policy),
		Queue: terms.Name(p.Queue), Mode: terms.Name(p.Mode), Side: terms.Name(p.Side), CapHolds: p.CapHolds, Ceiling: p.Ceiling, NoCeiling: p.NoCeiling,
		Group: p.Group, NoShare: p.NoShare, NoGroupCeiling: p.NoGroupCeiling,
	}
}

// Counts says that a program counts packets of this direction.
func (p *Params) Counts() bool { return p.Program != ProgramNone || p.HasCeiling() }

// Waits says that a program estimates how long packets wait: it has a meter of all that is
// queued, and knows how a TBF empties its bands.
func (p *Params) Waits() bool {
	return p.Policy != terms.PolicyFlat && p.Queue == terms.QueueTBF
}

// ProgramName is the BPF entry point, empty for [ProgramNone].
func (p *Params) ProgramName() string {
	if p.Program == ProgramNone {
		return ""
	}
	return p.Program.String()
}

// The range of handle majors that [RandomMajor] draws from: 0 is no handle,
// and from 0xFFF0 on the kernel has names of its own (TC_H_CLSACT is 0xFFFF,
// and a priority of TC_H_MAJ 0xFFFF would mean a root).
const (
	minMajor = 0x1
	maxMajor = 0xFFEF
)

// RandomMajor draws a handle major at random. It is safe for concurrent use.
func RandomMajor() uint16 {
	return uint16(minMajor + rand.IntN(maxMajor-minMajor+1))
}
