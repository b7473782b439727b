// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/terms"
)

// Adding is a pod's interface that is to get the limits which are requested for it. The
// CNI verb, the runtime's NRI hook and the agent's look at running pods differ in where
// they know of the pod from, and in nothing else.
type Adding struct {
	ContainerID, IfName string
	NetNSPath           string
	// Interfaces returns those that the chain made in the pod, none where nobody tells: see
	// [apply.Want.Names].
	Interfaces func(*netconf.Config) []string
	// Pod is "namespace/name", "" if it is not known.
	Pod string
	By  apply.By
	// Ended says of another container which has an interface of the pod whether it has ended; nil
	// if it has. The runtime adds no container to the network namespace of one that runs.
	Ended func(containerID string) bool
	// Strict is [apply.Want.Strict].
	Strict bool
	// Read reads what is requested, with the errors of [netconf.Parse].
	Read func() (*netconf.Config, error)
	// Open opens the node, and is called only where there is something to do.
	Open func() (*Node, error)
	// Paths have the failure records.
	Paths Paths
	// Log returns the log for what happens.
	Log func(*netconf.Config, attach.ID) *slog.Logger
}

// Added is what became of an ADD.
type Added struct {
	Config *netconf.Config
	// ID is the attachment, Interfaces what each of its interfaces has.
	ID         attach.ID
	Interfaces []*attach.Desired
	// Holder is another attachment that has all interfaces, and limits what is asked for; nil if
	// none does. If it is set, nothing was done.
	Holder *attach.ID
	// Refuse says that the pod must not start.
	Refuse bool
	// Err is why the pod has no limit, or not all of them; nil if it has what it is to have.
	// Failed is the part of it that is not about what cannot be read.
	Err, Failed error

	// left says that the attachment was left as another entry of the chain made it.
	left bool
}

// Add reads what a pod is to have and makes it so. It decides what becomes of a pod that
// cannot be limited, writes or clears its failure record, and logs what it did.
func Add(ctx context.Context, a *Adding) Added {
	conf, unread := a.Read()
	out := Added{Config: conf, ID: attach.ID{Network: conf.Name, ContainerID: a.ContainerID, IfName: a.IfName}}
	if a.By == apply.ByPlugin && netconf.IsContract(unread) { // the chain around podweir is broken: never failed open
		out.Err, out.Refuse = unread, true
		return out
	}
	log := a.Log(conf, out.ID)
	tellConfig(log, conf)
	refusable := !conf.FailOpen() && a.By != apply.ByAgent // what the agent finds runs
	// A rate that cannot be read does not cost the other direction its limit.
	if unread == nil || !refusable && conf.Shaping.Limited() {
		out.Failed = a.apply(ctx, log, &out)
	}
	out.Err = errors.Join(unread, out.Failed)
	switch {
	case out.Err == nil && a.By == apply.ByPlugin && !conf.Told && (out.left || !conf.Shaping.Limited()):
		// What failed may be the limit that another entry of the chain was told of.
	case out.Err == nil:
		a.Paths.Mail().ClearFailure(out.ID)
	case a.ended(out.Err):
	case refusable:
		out.Refuse = true
	default:
		switch {
		case a.By == apply.ByAgent: // its look is logged as a whole
		case len(out.Interfaces) > 0:
			log.Error("pod starts without all of its limits", "error", out.Err, "onError", conf.OnError.String())
		default:
			log.Error("pod starts unshaped", "error", out.Err, "onError", conf.OnError.String())
		}
		f := &mailbox.Failure{ID: out.ID, Pod: a.Pod, Time: time.Now().UTC(), Error: out.Err.Error(), NetNSPath: a.NetNSPath}
		if out.Failed == nil {
			f.Reason = mailbox.ReasonInvalid
		}
		a.Paths.Mail().RecordFailure(log, f)
	}
	return out
}

// ended says that an error means that there is no pod any more, which only whoever is not
// called within its set-up can meet.
func (a *Adding) ended(err error) bool {
	switch a.By {
	case apply.ByNRI:
		return errors.Is(err, apply.ErrNoNetNS)
	case apply.ByAgent:
		return errors.Is(err, apply.ErrGone) // it looks again
	default:
		return false
	}
}

// apply brings the pod to what is requested.
func (a *Adding) apply(ctx context.Context, log *slog.Logger, out *Added) error {
	limited := out.Config.Shaping.Limited()
	if !limited { // most pods have no limit, and nothing of an earlier ADD either
		if there, err := a.Paths.Attached(out.ID); err != nil || !there {
			return err
		}
	}
	node, err := a.Open()
	if err != nil {
		return err
	}
	defer node.Close()
	if a.By == apply.ByPlugin && node.OfAnotherEntry(out.Config, out.ID) {
		log.Warn("limit kept: another entry of podweir-cni in the chain made it; keep one entry, with the capabilities bandwidth and io.kubernetes.cri.pod-annotations")
		out.left = true
		return nil
	}
	if !limited {
		return node.Remove(ctx, out.ID)
	}
	want := &apply.Want{
		ID: out.ID, TakesOver: a.takesOver, NetNSPath: terms.NetNSPath(a.NetNSPath), Names: a.Interfaces(out.Config), Config: &out.Config.Shaping,
		ReplaceQdisc: out.Config.ReplaceQdisc, Pod: a.Pod, By: a.By, Strict: a.Strict,
	}
	if a.By == apply.ByPlugin {
		want.Told = &out.Config.Told
	}
	node.Skipped = func(name string, why error) {
		log.Warn("interface skipped: the others are shaped", "interface", name, "reason", why)
	}
	out.Interfaces, err = node.Ensure(ctx, want)
	out.ID = want.ID
	if held, is := errors.AsType[*apply.HeldError](err); is && len(held.Lacks) == 0 {
		log.Debug("pod is shaped already", "as", held.By.String())
		out.Holder = &held.By
		return nil
	}
	tellStates(ctx, log, out.Interfaces)
	return err
}

// takesOver is [apply.Want.TakesOver]: what was attached by hand stays.
func (a *Adding) takesOver(other attach.ID) bool {
	return other.Network != ManualNetwork && other.ContainerID != a.ContainerID && (a.Ended == nil || a.Ended(other.ContainerID))
}

// OfAnotherEntry says that another entry of a chain which has podweir-cni twice made an
// attachment, and that this one leaves it alone. The entry that the runtime tells of pods'
// limits decides, in whatever order they run: one that is not told changes nothing of what it
// made, and one that is told of no limit takes off none that another has of its own. Nor does
// one that is not told take off a limit that it lacks.
func (n *Node) OfAnotherEntry(conf *netconf.Config, id attach.ID) bool {
	records, _ := n.Records(id) // what cannot be read says nothing
	return slices.ContainsFunc(records, func(r *apply.Record) bool {
		switch {
		case conf.Told:
			return r.Told != nil && !*r.Told && !conf.Shaping.Limited()
		case len(conf.Shaping.Deferred) > 0:
			return false
		case r.Told != nil && *r.Told:
			return true
		}
		return slices.ContainsFunc(terms.Directions[:], func(d terms.Direction) bool {
			return r.Config.Limit(d) != nil && conf.Shaping.Limit(d) == nil
		})
	})
}

// tellConfig logs what is odd about what is requested.
func tellConfig(log *slog.Logger, conf *netconf.Config) {
	for _, w := range conf.Warnings {
		log.Warn("configuration read with a warning", "warning", w)
	}
	for _, d := range conf.Shaping.Deferred {
		log.Info("limit left to another shaper", "direction", d.Direction.String(), "rate", d.Rate.String(), "shaper", d.To.String())
	}
}

// tellStates logs what interfaces have now.
func tellStates(ctx context.Context, log *slog.Logger, states []*attach.Desired) {
	for _, s := range states {
		for d, ds := range s.Directions {
			if ds.Params.Observes() {
				log.Info("pod observed: its limit is measured and not enforced", "interface", s.Interface.PodName, "direction", d.String(),
					"rate", ds.Params.Rate.String(), "notes", ds.Params.Notes)
				continue
			}
			level := slog.LevelInfo
			if !ds.Params.CapHolds || len(ds.Params.Declined) > 0 {
				level = slog.LevelWarn
			}
			log.Log(ctx, level, "pod shaped", "interface", s.Interface.PodName, "direction", d.String(),
				"rate", ds.Params.Rate.String(), "queue", ds.Params.Queue.String(),
				"policy", ds.Params.Policy.String(), "notes", ds.Params.Notes)
		}
	}
}
