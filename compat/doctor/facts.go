// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"cmp"
	"context"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// Kernel is what the checks need of the running system besides files. Each
// method may fail by itself; the checks that need it are then unknown, with the
// error.
type Kernel interface {
	// Features lists kinds of queue, as the plugin's configuration names them, with whether
	// the kernel makes them, by trying.
	Features(ctx context.Context) (map[string]bool, error)
	// Devices are the host-side devices of pods, with all programs and
	// qdiscs.
	Devices(ctx context.Context) ([]Device, error)
	// Limits are what podweir made, with all that is wrong with it.
	Limits(ctx context.Context) (Limits, error)
	// Agent asks podweir's agent whether it is ready; nil if none answers.
	Agent(ctx context.Context) (*Agent, error)
	// Asking are the pods of the container runtime, with what they ask for by their
	// annotations; none if nobody is asked. Entry is podweir's in the chain, nil if it is in
	// none: it says which limits are left to others.
	Asking(ctx context.Context, entry []byte) ([]Sandbox, error)
	// Verdicts runs a copy of each of podweir's shared-hook programs, with its
	// own maps, on packets that may pass.
	Verdicts(ctx context.Context) ([]terms.Verdict, error)
	// Queues are the kinds of all qdiscs on devices of the node, by their names.
	Queues(ctx context.Context, devices []string) (map[string][]string, error)
}

// Qdisc is a qdisc of a device.
type Qdisc struct {
	// Kind is as tc prints it.
	Kind string
	// Root says that it is the device's root qdisc; ingress and clsact are not.
	Root bool
	Ours bool
	// BitsPerSec is the rate of a tbf, 0 if not known.
	BitsPerSec uint64
}

// Device is the host-side device of a pod.
type Device struct {
	Name string
	// Pod separates the devices of one pod from those of others: a number above 0 for
	// the network namespace of the other end.
	Pod int
	// In and Out are the hooks by the device's own direction.
	In, Out judge.Chain
	// XDP is the program that has what the pod sends before In, nil if there is none.
	XDP    *judge.Program
	Qdiscs []Qdisc
	// Egress are the qdiscs of the devices that filters send the pod's packets to.
	Egress []Qdisc
}

// Attachment is one direction of one pod, as podweir shapes it.
type Attachment struct {
	// Pod is namespace/name, or what else names it.
	Pod string
	// Young means that it is too new to be judged; nothing but ContainerID is set then.
	Young bool
	terms.Limit
	// Place is of ingress alone.
	Place terms.Place
	// Device is the host-side device, Hook its direction and Program the id of
	// ours there; Program is 0 if none of ours is on a host-side hook.
	Device  string
	Hook    terms.Hook
	Program uint32
	// Changed is when its programs were last attached or detached, zero if that is not
	// known.
	Changed time.Time
	// ContainerID is the runtime's, but where it was made by hand: then ByHandIn is the path of
	// the pod's network namespace, and Addresses are those in it.
	ContainerID, ByHandIn string
	Addresses             []netip.Addr
	// Redirected says that the direction waits on an ifb; Ahead are the programs
	// of others on that hook, all of which run before the redirect, without those that let
	// every packet on.
	Redirected bool
	Ahead      []judge.Program
	// Blocked names a program in the pod that drops every packet of the direction; "" if there is none.
	Blocked string
	// Divided says that an agent divides the limit that the pods of the namespace have together.
	Divided bool
	// FailedOpen counts the packets that passed for a fault of podweir's own.
	FailedOpen uint64
	// PastQueue counts the packets that the ceiling dropped.
	PastQueue uint64
	// Uncounted says why neither is known, "" if both are.
	Uncounted string
	// Kept are settings that another party chose in place of what podweir would set, as
	// name=value.
	Kept []string
	// Policed says why the direction is policed though its configuration wants a queue, "" if
	// it has one or wants none.
	Policed string
	// Standard says that the pod asks for the limit by an annotation of Kubernetes, which
	// other software may enforce, too.
	Standard bool
}

// Limits are podweir's limits of the pods of a node.
type Limits struct {
	Attached []Attachment
	// Troubles are what is wrong with them, and with pods that should have some.
	Troubles []terms.Trouble
	// Watched says that an agent watches whether limits hold, UnenforcedErr why it is not known what it found.
	Watched       bool
	UnenforcedErr error
}

func (a *Attachment) name() string { return a.Pod + " " + a.Direction.String() }

// Facts are all that the checks look at.
type Facts struct {
	Options
	Limits

	Root fs.FS
	Node *detect.Node
	// Profile belongs to the CNI in force, or is the one for unknown CNIs.
	Profile *profiles.Profile
	// Choice is the delivery that suits the node.
	Choice conflist.Choice
	// Situation is what the choice depends on.
	Situation conflist.Situation
	// handed is podweir's entry for a chain that the primary CNI writes itself, "" if the
	// node's settings are not known.
	handed string

	Features    map[string]bool
	FeaturesErr error
	Devices     []Device
	DevicesErr  error
	// AttachedErr says why Limits is not known.
	AttachedErr error
	Agent       *Agent
	AgentErr    error
	Verdicts    []terms.Verdict
	VerdictsErr error
	// ManagerQueues are the kinds of qdisc on the devices of Cilium's bandwidth manager, as
	// far as they are known.
	ManagerQueues map[string][]string

	Sandboxes    []Sandbox
	SandboxesErr error
}

// Options are what is given from outside.
type Options struct {
	Version string
	Kernel  Kernel
	// Settle is how long what looks wrong gets to come right, where pods that come
	// and go look so; 0 is a second.
	Settle time.Duration
	// Delivery is the one that the operator chose; "" or auto leaves it to the
	// node.
	Delivery profiles.Delivery
	// Handed returns podweir's entry for a chain that the primary CNI writes itself, with
	// the settings of the node. Nil or "" says that they are not known.
	Handed func(*detect.Node) string
	// Unwritable says why podweir-cni cannot leave word of pods that it could not limit, nil if it can.
	Unwritable error
	// Fight is a file that the agent stopped writing, nil if there is none.
	Fight *conflist.Fight
	// Run is how podweir's program is run where the report is read, as [terms.OnPath]; ""
	// is that.
	Run string
	// Entry is the plugin's own parser: it returns an error for an entry of which it
	// would not take a value. Nil leaves that out.
	Entry func(entry []byte) error
}

// Gather collects the facts. What is slow is read once, here.
func Gather(ctx context.Context, root fs.FS, node *detect.Node, opts Options) *Facts {
	f := &Facts{Options: opts, Root: root, Node: node, Profile: node.Profile}
	if f.Profile == nil {
		f.Profile = profiles.Other()
	}
	if opts.Handed != nil {
		f.handed = opts.Handed(node)
	}
	if f.handed != "" {
		f.Profile = f.Profile.WithEntry(f.handed)
	}
	f.Situation = node.Situation()
	f.Situation.Profile = f.Profile
	for _, dirs := range [][]string{{node.ConfDir}, node.BinDirs} {
		if fixed := mountedWith(root, "ro", dirs...); len(fixed) == len(dirs) {
			f.Situation.Writable, f.Situation.Obstacle = profiles.No, "/"+fixed[0]+" is on a file system that is mounted read-only"
		}
	}
	f.Choice = conflist.Choose(f.Situation)
	if f.Situation.Writable == profiles.No && f.called() == nil && slices.Contains(f.chain(), conflist.Type) {
		// As the agent does: what was in force before stays so.
		if d, _ := f.inPlace(); d != profiles.Handed {
			f.Choice = conflist.Choice{Delivery: d, Why: "as it was: " + f.Situation.Obstacle}
		}
	}
	f.Agent, f.AgentErr = opts.Kernel.Agent(ctx)
	requested := "requested"
	if f.Agent != nil && f.Agent.Delivery.ByAgent() {
		requested = "the agent's choice"
		opts.Delivery = f.Agent.Delivery // it may see what is not seen here, as that it cannot write a directory
	}
	if opts.Delivery != f.Choice.Delivery {
		switch opts.Delivery {
		case profiles.NRI:
			// No file shows it.
			f.Choice = conflist.Choice{Delivery: profiles.NRI, Why: requested}
		case profiles.Watch:
			f.Choice = conflist.Choice{Delivery: profiles.Watch, Why: requested + "; " + conflist.WatchIsLate}
		case profiles.Handed:
			// Nor this one, before the primary CNI has written its file again.
			if do := f.Profile.Conflist.HandedDo; len(do) > 0 {
				f.Choice = conflist.Choice{Delivery: profiles.Handed, Why: requested, Do: do}
			}
		default:
		}
	}
	f.Sandboxes, f.SandboxesErr = f.askedFor(ctx, opts.Kernel)
	k := opts.Kernel
	f.Features, f.FeaturesErr = k.Features(ctx)
	began := time.Now()
	f.Devices, f.DevicesErr = k.Devices(ctx)
	f.Limits, f.AttachedErr = k.Limits(ctx)
	f.leaveOutYoung()
	onlySettled(f.Attached, began)
	f.Verdicts, f.VerdictsErr = k.Verdicts(ctx)
	// What cannot be read is taken for what it should be: Cilium's word counts then.
	f.ManagerQueues, _ = k.Queues(ctx, node.Cilium.BandwidthDevices)
	settle := cmp.Or(opts.Settle, time.Second)
	f.readQueues(ctx, k, settle)
	f.forgetEnded(ctx, k, settle)
	return f
}

// leaveOutYoung forgets pods that were attached a moment ago: as an attachment, and as an
// interface that requests one.
func (f *Facts) leaveOutYoung() {
	young := map[string]bool{}
	f.Attached = slices.DeleteFunc(f.Attached, func(a Attachment) bool {
		if a.Young {
			young[a.ContainerID] = true
		}
		return a.Young
	})
	f.Sandboxes = slices.DeleteFunc(f.Sandboxes, func(s Sandbox) bool { return young[s.ContainerID] })
}

// clockTick is more than the resolution of the times of files (a jiffy, at most
// 10 ms).
const clockTick = 10 * time.Millisecond

// onlySettled leaves attachments that changed after the devices were read out of
// the order on hooks: their pods have just started or stopped.
func onlySettled(attached []Attachment, devices time.Time) {
	for i := range attached {
		if a := &attached[i]; a.Changed.After(devices.Add(-clockTick)) {
			a.Program = 0
		}
	}
}

// inForce is the name of the file in force, as findings are about it.
func (f *Facts) inForce() []string {
	if file := f.Node.Conf.Active(); file != nil {
		return []string{file.Name}
	}
	return nil
}

// chain is the chain in force as the runtime builds it. Where it is not known
// whether drop-ins are read they are counted: what may be in force matters.
func (f *Facts) chain() []string {
	if own := f.called(); own != nil {
		return own.Network.Types()
	}
	return f.Node.Conf.Effective(f.Node.Runtime.ReadsDropIns() != profiles.No)
}

// called is the file of podweir's that the network in force calls by itself, as Multus does; nil if there is none.
func (f *Facts) called() *conflist.File {
	first := f.Node.Conf.Active()
	if first == nil || first.Ours() || first.Network == nil {
		return nil
	}
	_, names := first.Network.Calls()
	own := f.Node.Conf.Own()
	at := slices.IndexFunc(own, func(o conflist.File) bool { return o.Network != nil && slices.Contains(names, o.Name) })
	if at < 0 {
		return nil
	}
	return &own[at]
}

// ownDropIns lists the networks whose drop-in directory has podweir in it,
// among those that have a file in the directory of conflists.
func (f *Facts) ownDropIns() []string {
	if f.Node.Conf == nil {
		return nil
	}
	var out []string
	for network, list := range f.Node.Conf.DropIns {
		if slices.ContainsFunc(list, func(c conflist.DropInConf) bool { return c.Type == conflist.Type || c.Name == conflist.DropInFile }) {
			out = append(out, network)
		}
	}
	slices.Sort(out)
	return out
}
