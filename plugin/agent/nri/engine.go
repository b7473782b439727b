// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package nri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
)

// ifName is what Kubernetes runtimes call a pod's first interface.
const ifName = "eth0"

// Engine implements [Shaper] with what ADD and DEL use. The attachments that it
// makes are those that ADD of the same network would make.
type Engine struct {
	// Open opens the node's state in the network namespace that the pods' other
	// ends are in.
	Open func() (*engine.Node, error)
	// NetConf returns podweir-cni's entry with the name of the network: the
	// defaults of the node. It is called for each pod.
	NetConf func() (json.RawMessage, error)
	// Rates returns what is set on a Namespace, within the time of the context; nil
	// knows of none.
	Rates func(ctx context.Context, namespace string) netconf.Namespace
	// Claimed says whether somebody else knows what a pod asks for now, by its UID, and
	// shapes it: [Engine.Adopt] leaves it to them. Nil means nobody.
	Claimed func(uid string) bool
	// Paths has the failure records.
	Paths engine.Paths
	// Unshaped is told of each pod that has a limit and runs, or was refused,
	// without it. Nil does nothing.
	Unshaped func(p *Pod, err error)
	Log      *slog.Logger
}

// ratesTimeout is how long a pod waits for what is set on its namespace.
const ratesTimeout = 500 * time.Millisecond

// parse reads what the pod asks for as ADD does.
func (e *Engine) parse(ctx context.Context, p *Pod) (*netconf.Config, error) {
	entry, err := e.NetConf()
	if err != nil {
		return &netconf.Config{OnError: netconf.FailOpen}, fmt.Errorf("read the node's configuration: %w", err)
	}
	var rates netconf.Namespace
	if e.Rates != nil && p.NetNS != "" {
		ctx, cancel := context.WithTimeout(ctx, ratesTimeout)
		defer cancel()
		rates = e.Rates(ctx, p.Namespace)
	}
	return netconf.ParseEntry(entry, p.Annotations, rates)
}

// Shape implements [Shaper].
func (e *Engine) Shape(ctx context.Context, p *Pod) (refuse bool, err error) {
	conf, err := e.parse(ctx, p)
	for _, w := range conf.Warnings {
		e.Log.Warn("configuration read with a warning", "pod", p.Namespace+"/"+p.Name, "warning", w)
	}
	for _, d := range conf.Shaping.Deferred {
		e.Log.Info("limit left to another shaper", "pod", p.Namespace+"/"+p.Name, "direction", d.Direction.String(),
			"rate", d.Rate.String(), "shaper", d.To.String())
	}
	id := attach.ID{Network: conf.Name, ContainerID: p.ID, IfName: ifName}
	// A rate that cannot be read does not cost the other direction its limit.
	if err == nil || conf.OnError != netconf.FailClosed && conf.Shaping.Limited() {
		err = errors.Join(err, e.shape(ctx, id, conf, p))
	}
	switch {
	case err == nil:
		e.Paths.ClearFailure(id)
		return false, nil
	case errors.Is(err, attach.ErrGone):
		// The sandbox ended meanwhile: there is nothing left to shape.
		return false, err
	}
	e.Paths.RecordFailure(e.Log, id, p.Namespace+"/"+p.Name, err)
	if e.Unshaped != nil {
		e.Unshaped(p, err)
	}
	return conf.OnError == netconf.FailClosed, err
}

// Adopt implements [Shaper]. A pod that is shaped keeps what it has: its limit may have
// been changed since it was made.
func (e *Engine) Adopt(ctx context.Context, p *Pod) error {
	if e.Claimed != nil && e.Claimed(p.UID) || e.shaped(p) {
		return nil
	}
	_, err := e.Shape(ctx, p)
	return err
}

// shaped says whether the pod has an attachment. It does not where that cannot be
// found out: what is in the way then is an error of [Engine.Shape].
func (e *Engine) shaped(p *Pod) bool {
	if p.NetNS == "" {
		return false
	}
	node, err := e.Open()
	if err != nil {
		return false
	}
	defer node.Close()
	_, held, err := node.Holder(p.NetNS, ifName, attach.ID{})
	return err == nil && held
}

func (e *Engine) shape(ctx context.Context, id attach.ID, conf *netconf.Config, p *Pod) error {
	if !conf.Shaping.Limited() || p.NetNS == "" {
		return nil
	}
	node, err := e.Open()
	if err != nil {
		return err
	}
	defer node.Close()
	// One that ADD of another network shaped keeps what it got.
	holder, held, err := node.Holder(p.NetNS, ifName, id)
	if held {
		e.Log.Debug("pod is shaped already", "pod", p.Namespace+"/"+p.Name, "as", holder.String())
	}
	if err != nil || held {
		return err
	}
	states, err := node.Ensure(ctx, &attach.Want{
		ID: id, NetNSPath: p.NetNS, Names: []string{ifName}, Config: &conf.Shaping,
		ReplaceQdisc: conf.ReplaceQdisc, Pod: p.Namespace + "/" + p.Name, By: attach.ByNRI,
	})
	for _, s := range states {
		for d, ds := range s.Directions {
			e.Log.Info("pod shaped", "pod", p.Namespace+"/"+p.Name, "interface", s.Interface.PodName,
				"direction", d.String(), "rate", ds.Params.Rate.String(), "queue", ds.Params.Queue.String())
			for _, declined := range ds.Params.Declined {
				e.Log.Warn("configuration read with a warning", "pod", p.Namespace+"/"+p.Name, "direction", d.String(), "warning", declined)
			}
		}
	}
	return err
}

// Forget implements [Shaper]. It works by the sandbox's ID alone: what the
// configuration says now need not be what it was.
func (e *Engine) Forget(ctx context.Context, p *Pod) error {
	return e.each(func(node *engine.Node, id attach.ID) error {
		if id.ContainerID != p.ID {
			return nil
		}
		e.Paths.ClearFailure(id)
		return node.Remove(ctx, id)
	})
}

// Known implements [Shaper].
func (e *Engine) Known(ctx context.Context, ids []string) error {
	return e.each(func(node *engine.Node, id attach.ID) error {
		if slices.Contains(ids, id.ContainerID) {
			return nil
		}
		if _, err := node.RemoveGone(ctx, id); err != nil {
			return err
		}
		records, err := node.Records(id)
		if err == nil && len(records) == 0 {
			e.Paths.ClearFailure(id)
		}
		return err
	})
}

// each calls f for every attachment and, where there was none because it failed,
// for every failure record.
func (e *Engine) each(f func(*engine.Node, attach.ID) error) error {
	node, err := e.Open()
	if errors.Is(err, engine.ErrNoState) {
		return nil
	}
	if err != nil {
		return err
	}
	defer node.Close()
	ids, all := node.Known()
	for _, id := range ids {
		all = errors.Join(all, f(node, id))
	}
	return all
}
