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

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
)

// Limiter implements [Shaper] with what ADD and DEL use. The attachments that it
// makes are those that ADD of the same network would make.
type Limiter struct {
	// Open opens the node's state in the network namespace that the pods' other
	// ends are in.
	Open func() (*engine.Node, error)
	// NetConf returns podweir-cni's entry with the name of the network: the
	// defaults of the node. It is called for each pod.
	NetConf func() (json.RawMessage, error)
	// Rates returns what is set on a Namespace, within the time of the context; nil
	// knows of none.
	Rates func(ctx context.Context, namespace string) netconf.Namespace
	// Claimed says whether another party knows what a pod asks for now, by its UID, and
	// shapes it: [Limiter.Adopt] leaves it to them. Nil means nobody.
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
func (e *Limiter) parse(ctx context.Context, p *Pod) (*netconf.Config, error) {
	entry, err := e.NetConf()
	if err != nil {
		return &netconf.Config{OnError: netconf.FailOpen}, fmt.Errorf("read the node's configuration: %w", err)
	}
	var rates netconf.Namespace
	if e.Rates != nil {
		ctx, cancel := context.WithTimeout(ctx, ratesTimeout)
		defer cancel()
		rates = e.Rates(ctx, p.Namespace)
	}
	return netconf.ParseEntry(entry, p.Annotations, rates)
}

// Shape implements [Shaper].
func (e *Limiter) Shape(ctx context.Context, p *Pod) (refuse bool, err error) {
	if p.NetNS == "" {
		return false, nil // it shares the node's network
	}
	added := engine.Add(ctx, &engine.Adding{
		ContainerID: p.ID, IfName: engine.MainIfName, NetNSPath: p.NetNS, Pod: p.Namespace + "/" + p.Name,
		By: apply.ByNRI, Paths: e.Paths, Open: e.Open,
		Read:       func() (*netconf.Config, error) { return e.parse(ctx, p) },
		Interfaces: func(*netconf.Config) []string { return nil },
		Log:        func(*netconf.Config, attach.ID) *slog.Logger { return e.Log.With("pod", p.Namespace+"/"+p.Name) },
	})
	if added.Err != nil && e.Unshaped != nil && !errors.Is(added.Err, apply.ErrNoNetNS) {
		e.Unshaped(p, added.Err)
	}
	return added.Refuse, added.Err
}

// Adopt implements [Shaper]. A pod that is shaped keeps what it has: its limit may have
// been changed since it was made.
func (e *Limiter) Adopt(ctx context.Context, p *Pod) error {
	if e.Claimed != nil && e.Claimed(p.UID) || e.shaped(p) {
		return nil
	}
	_, err := e.Shape(ctx, p)
	return err
}

// shaped says whether the sandbox has an attachment. It does not where that cannot be
// found out: what is in the way then is an error of [Limiter.Shape].
func (e *Limiter) shaped(p *Pod) bool {
	if p.NetNS == "" {
		return false
	}
	node, err := e.Open()
	if err != nil {
		return false
	}
	defer node.Close()
	id, _ := node.Kept(attach.ID{ContainerID: p.ID, IfName: engine.MainIfName})
	records, _ := node.Records(id)
	return slices.ContainsFunc(records, func(r *apply.Record) bool {
		_, err := node.Refind(r) // eth0 may have been made anew
		return err == nil
	})
}

// Forget implements [Shaper]. It works by the sandbox's ID alone: what the
// configuration says now need not be what it was.
func (e *Limiter) Forget(ctx context.Context, p *Pod) error {
	return e.each(func(node *engine.Node, id attach.ID) error {
		if id.ContainerID != p.ID {
			return nil
		}
		e.Paths.Mail().ClearFailure(id)
		return node.Remove(ctx, id)
	})
}

// Known implements [Shaper].
func (e *Limiter) Known(ctx context.Context, ids []string) error {
	return e.each(func(node *engine.Node, id attach.ID) error {
		if slices.Contains(ids, id.ContainerID) {
			return nil
		}
		if _, err := node.RemoveGone(ctx, id); err != nil {
			return err
		}
		records, err := node.Records(id)
		if err == nil && len(records) == 0 {
			e.Paths.Mail().ClearFailure(id)
		}
		return err
	})
}

// each calls f for every attachment and, where there was none because it failed,
// for every failure record.
func (e *Limiter) each(f func(*engine.Node, attach.ID) error) error {
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
