// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package examine answers what the doctor asks about a running node, in the doctor's
// words. It needs the privileges of podweir status.
package examine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/version"
)

// Node is the node that is examined, in the namespaces that this process runs in. It
// implements [doctor.Kernel] and [detect.Live].
type Node struct {
	Paths engine.Paths
	// Root is the root directory of the node.
	Root string
	// CRISocket of the container runtime; the kubelet's, or looked for below the
	// root, if empty.
	CRISocket string
	// HealthAddress is where podweir's agent answers /readyz; empty asks nobody.
	HealthAddress string
	// Patience is how many times longer than usual a program of the node may take for an
	// answer; 0 is once. Tests on a busy machine have more.
	Patience int
	// Young is the age from which on attachments are looked at, 0 for all.
	Young time.Duration
}

// Doctor runs the doctor's checks on the node. Where and how to look comes from the
// caller, who and what to ask from here.
func (n *Node) Doctor(ctx context.Context, where detect.Options, how doctor.Options) *doctor.Report {
	host := detect.HostRoot(n.Root)
	where.Live = n
	how.Version, how.Kernel, how.Entry, how.Unwritable = version.String(), n, checkEntry, n.Paths.Mail().Unwritable()
	return doctor.Run(doctor.Gather(ctx, host, detect.Read(ctx, host, where), how))
}

// WholeEntry is podweir's entry in a chain with what the runtime adds of the network, so
// that it can be read as podweir-cni reads it.
func WholeEntry(entry []byte) ([]byte, error) {
	conf := map[string]any{}
	if err := json.Unmarshal(entry, &conf); err != nil {
		return nil, err
	}
	conf["cniVersion"], conf["name"] = "1.0.0", "network"
	return json.Marshal(conf)
}

// checkEntry reads podweir's entry as podweir-cni would, and refuses what that ignores.
func checkEntry(entry []byte) error {
	b, err := WholeEntry(entry)
	if err != nil {
		return err
	}
	parsed, err := netconf.ParseStrict(netconf.Status, b)
	if err != nil {
		return err
	}
	var misspelt error
	for _, key := range parsed.Misspelt {
		misspelt = errors.Join(misspelt, errors.New(key))
	}
	return misspelt
}

// open opens podweir's state; nil and no error if there is none.
func (n *Node) open() (*engine.Node, error) {
	node, err := engine.Open(n.Paths)
	if errors.Is(err, engine.ErrNoState) {
		return nil, nil
	}
	return node, err
}

// errOtherBPFFS means that the node may have limits of podweir's that this process cannot see.
var errOtherBPFFS = errors.New("the node's BPF file system is not mounted at /sys/fs/bpf here: podweir's limits are out of sight")

// Features tries each kind of queue in a namespace of its own.
func (n *Node) Features(context.Context) (map[string]bool, error) {
	f, err := queue.Probe()
	return map[string]bool{"tbf": f.TBF, "prio": f.Prio, "htb": f.HTB, "fq": f.FQ}, err
}

// Verdicts runs copies of podweir's shared-hook programs.
func (n *Node) Verdicts(context.Context) ([]terms.Verdict, error) { return datapath.TestVerdicts() }

// Programs lists the programs on the pods' devices.
func (n *Node) Programs(ctx context.Context) ([]string, error) {
	devices, err := n.Devices(ctx)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, d := range devices {
		for _, p := range slices.Concat(d.In.Programs, d.Out.Programs) {
			out = append(out, p.Name)
		}
	}
	return out, nil
}

// Limits are what status shows.
func (n *Node) Limits(ctx context.Context) (found doctor.Limits, err error) {
	node, err := n.open()
	if err != nil {
		return found, err
	}
	var rep *status.Report
	if node == nil {
		if mounted, _ := detect.BPFFS(detect.HostRoot(n.Root)); mounted == profiles.Yes {
			return found, errOtherBPFFS
		}
		rep, err = status.Recorded(n.Paths)
	} else {
		defer node.Close()
		rep, err = status.Settled(ctx, node, n.Young)
	}
	if err != nil {
		return found, err
	}
	n.forgetEnded(ctx, rep)
	for i := range rep.Attachments {
		found.Attached = append(found.Attached, attachments(node, &rep.Attachments[i], rep.Groups)...)
	}
	for _, id := range rep.Young {
		found.Attached = append(found.Attached, doctor.Attachment{ContainerID: id.ContainerID, Young: true})
	}
	found.Troubles, found.Watched, found.UnenforcedErr = rep.Troubles(time.Now()), !rep.AgentLooked.IsZero(), rep.UnenforcedErr
	return found, nil
}

// forgetEnded leaves out what an agent that has ended, too, recorded of pods that the runtime does not run any more:
// nobody else takes it back.
func (n *Node) forgetEnded(ctx context.Context, rep *status.Report) {
	if !rep.AgentLooked.IsZero() || len(rep.Unshaped)+len(rep.Overdue) == 0 {
		return
	}
	pods, err := n.Pods(ctx)
	if err != nil || len(pods) == 0 {
		return
	}
	ended := func(u mailbox.Unshaped) bool { // a record that is damaged has no reason
		return u.Reason != "" && !slices.ContainsFunc(pods, func(p cri.Pod) bool { return p.Name == u.Pod })
	}
	rep.Unshaped, rep.Overdue = slices.DeleteFunc(rep.Unshaped, ended), slices.DeleteFunc(rep.Overdue, ended)
}

// byHandIn is the network namespace of an attachment that was made by hand, "" of others.
func byHandIn(a *status.Attachment) string {
	if a.By != apply.ByHand {
		return ""
	}
	return a.Interface.NetNSPath
}

// addressesIn are the addresses in a network namespace, none if it cannot be looked at.
func addressesIn(path string) (all []netip.Addr) {
	if path == "" {
		return nil
	}
	ns, err := rtnl.OpenNetNS(path)
	if err != nil {
		return nil
	}
	defer func() { _ = ns.Close() }()
	_ = ns.Do(func() error {
		addresses, err := net.InterfaceAddrs()
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, p.Addr())
			}
		}
		return err
	})
	return all
}

func attachments(node *engine.Node, a *status.Attachment, groups []mailbox.Group) []doctor.Attachment {
	var out []doctor.Attachment
	record := a.Record()
	for _, d := range a.Directions {
		one := doctor.Attachment{
			Pod: a.Name(), ContainerID: a.ID.ContainerID, ByHandIn: byHandIn(a), Limit: d.Limit, Device: a.Interface.HostName,
			FailedOpen: counted(d.Counters, "failed-open"), PastQueue: counted(d.Counters, "dropped-ceiling"), Standard: standard(record, d.Direction.Is),
			Kept: d.Kept,
		}
		if d.BlockedAt == terms.SidePod { // Devices have what is at the host side
			one.Blocked = d.Blocked
		}
		one.Addresses = addressesIn(one.ByHandIn)
		one.Divided = record != nil && slices.ContainsFunc(groups, func(g mailbox.Group) bool {
			return g.Namespace == record.Namespace() && g.Direction == d.Direction
		})
		if d.CountersErr != nil && len(a.Drift) == 0 { // a difference says why
			one.Uncounted = d.CountersErr.Error()
		}
		if d.Direction.Is == terms.Ingress {
			one.Place = terms.PlaceIFB
			if d.Side.Is == terms.SideHost {
				one.Place = terms.PlaceHost
			}
		}
		if record != nil {
			one.Changed = node.Pinned(record)
			if state := a.Inspection().Want.Directions[d.Direction.Is]; state != nil {
				fromInspection(a.Inspection(), state, &one)
				one.Policed = policed(&d, record.Config.Limit(d.Direction.Is))
			}
		}
		out = append(out, one)
	}
	return out
}

// policed says why a direction is policed though its configuration wants a queue; "" if it
// has one, or wants none.
func policed(d *status.Direction, wish *shaping.Limit) string {
	if d.Queue.Is != terms.QueueNone || wish == nil || wish.Queue == terms.QueueNone || wish.Mode != terms.ModeAuto && wish.Mode != terms.ModeQdisc {
		return ""
	}
	var reasons []string
	for _, g := range d.Degraded {
		reasons = append(reasons, g.Reason)
	}
	if len(reasons) == 0 {
		reasons = d.Notes
	}
	return cmp.Or(strings.Join(reasons, "; "), "no queue was available")
}

// standard says that a pod asks for the limit by an annotation of Kubernetes, and
// `podweir set` has not changed it since.
func standard(r *apply.Record, d terms.Direction) bool {
	if r == nil || r.Asked != nil {
		return false
	}
	limit := r.Config.Limit(d)
	return limit != nil && limit.Standard
}

// fromInspection adds what status does not show.
func fromInspection(in *attach.Inspection, state *attach.DirectionState, one *doctor.Attachment) {
	obs := in.Observed
	p := state.Params
	if p.Side == terms.SideHost && (p.Hook == terms.HookEgress || p.Hook == terms.HookIngress) {
		one.Hook = p.Hook
	}
	one.Redirected = p.Side == terms.SideIFB || p.Direction == terms.Ingress && in.Starved != ""
	if one.Hook == 0 && !one.Redirected {
		return
	}
	for _, h := range obs.Device(terms.SideHost).Hooks {
		// None if it is not there: then the doctor finds nothing of ours on the
		// hook, which is what it is.
		if one.Hook == h.Hook && h.Ours && h.Name == p.ProgramName() {
			one.Program = h.ProgramID
		}
	}
	if !one.Redirected {
		return
	}
	one.Ahead = slices.DeleteFunc(obs.Device(terms.SidePod).Chain(terms.SidePod, terms.HookIngress).Others(),
		func(p judge.Program) bool { return p.Answer == judge.AnswerNext })
}

// counted sums the packets of the dispositions whose names begin so.
func counted(counters []datapath.Counter, prefix string) uint64 {
	sum := uint64(0)
	for _, c := range counters {
		if strings.HasPrefix(c.Disposition, prefix) {
			sum += c.Packets
		}
	}
	return sum
}

// Queues are the qdiscs of devices of the node.
func (n *Node) Queues(_ context.Context, devices []string) (map[string][]string, error) {
	return n.Paths.QueueKinds(devices)
}

// Devices are the host's ends of pods' interfaces.
func (n *Node) Devices(context.Context) ([]doctor.Device, error) {
	all, err := n.Paths.PodDevices()
	out := make([]doctor.Device, len(all))
	for i := range all {
		d := &all[i]
		out[i] = doctor.Device{
			Name: d.Name, Pod: d.NetNSID + 1,
			In: *d.Chain(terms.SideHost, terms.HookIngress), Out: *d.Chain(terms.SideHost, terms.HookEgress),
			XDP: d.XDP, Qdiscs: qdiscs(d.Tree.Qdiscs, d.OwnTree), Egress: qdiscs(d.Egress, false),
		}
	}
	return out, err
}

func qdiscs(all []shaping.Qdisc, ours bool) []doctor.Qdisc {
	out := make([]doctor.Qdisc, len(all))
	for i, q := range all {
		out[i] = doctor.Qdisc{Kind: string(q.Kind), Root: q.Parent == shaping.RootParent, Ours: ours, BitsPerSec: uint64(q.Rate.BitRate())}
	}
	return out
}
