// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/version"
)

// checkCluster says what is wrong with the settings for whoever reads all nodes.
func checkCluster(o *options, fail func(format string, args ...any)) {
	address, reader := o.v.GetString("cluster-address"), o.v.GetString("cluster-reader")
	if address == "" {
		return
	}
	if err := serve.CheckAddress(address); err != nil {
		fail("--cluster-address: %w", err)
	}
	if namespace, name, ok := strings.Cut(reader, "/"); !ok || namespace == "" || name == "" || strings.ContainsAny(name, "/:") {
		fail("--cluster-reader %q is not accepted with --cluster-address, want namespace/name of a ServiceAccount", reader)
	}
}

// serveNode has the state of the node served to the account that reads all nodes, if the
// operator wants that.
func (a *agentParts) serveNode(ctx context.Context, c *serve.Config, checks []serve.Check) {
	c.NodeAddress = a.o.v.GetString("cluster-address")
	account := "system:serviceaccount:" + strings.ReplaceAll(a.o.v.GetString("cluster-reader"), "/", ":")
	c.ReviewNode = func(ctx context.Context, token, _ string) (bool, error) {
		return a.client.MayRead(ctx, token, cluster.Audience, account)
	}
	c.Node = a.nodeHandler(ctx, runnable(checks, a.o.runByOthers()))
}

// nodeHandler answers with what the agent knows of its node.
func (a *agentParts) nodeHandler(ctx context.Context, checks []serve.Check) http.Handler {
	return serve.NewPage("application/json", func(w io.Writer) error {
		return json.NewEncoder(w).Encode(a.answer(ctx, checks))
	}, a.log)
}

func (a *agentParts) answer(ctx context.Context, checks []serve.Check) *cluster.Answer {
	self := &doctor.Agent{}
	answer := &cluster.Answer{Schema: cluster.Schema, Node: a.o.v.GetString("node-name"), Version: version.String()}
	self.NotReady = failing(checks)
	answer.NotReady = terms.Texts(self.NotReady)
	if a.waiting.on() {
		answer.Error = a.waiting.problem().Error() // the other agent tells of the pods
		return answer
	}
	if state, err := a.nodeStatus(ctx); err != nil {
		answer.Error = err.Error()
	} else {
		answer.Status = state
		answer.Unlimited = podsWithoutLimit(a.reconciler.Snapshot())
	}
	self.Notes = failing(a.notes)
	rep, at := a.node.last()
	answer.Doctor, answer.DoctorTime = rep.With(self, a.o.runByOthers()), at
	return answer
}

func failing(checks []serve.Check) (all []doctor.Part) {
	for _, c := range checks {
		if err := c.Err(); err != nil {
			all = append(all, doctor.Part{Name: c.Name, Reason: err.Error()})
		}
	}
	return all
}

// podsWithoutLimit are the pods that podweir has no limit for. One whose network is not set up
// yet may get one.
func podsWithoutLimit(states []reconcile.PodState) *cluster.Unlimited {
	u := &cluster.Unlimited{None: map[string]int{}}
	for i := range states {
		s := &states[i]
		told, err := s.Told()
		left := told == reconcile.Deferred
		switch {
		case s.UID == "" || len(s.Limits) > 0 || told == reconcile.Waiting:
		case told == reconcile.Unlimited || told == reconcile.Removed:
			u.None[s.Namespace]++
		case left || !told.Enforced():
			one := cluster.UnlimitedPod{Pod: s.Namespace + "/" + s.Name, LeftToOthers: left, Cause: s.Reason}
			if err != nil {
				one.Cause = err.Error()
			}
			u.Pods = append(u.Pods, one)
		}
	}
	return u
}

// nodeStatus is what `podweir status` shows.
func (a *agentParts) nodeStatus(ctx context.Context) (*view.Status, error) {
	var rep *status.Report
	node, err := a.o.open()
	switch {
	case err == nil:
		defer node.Close()
		rep, err = status.Collect(node)
	case errors.Is(err, engine.ErrNoState): // nothing is attached
		rep, err = status.Recorded(a.o.paths())
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, profileTimeout)
	defer cancel()
	a.o.bypassed(ctx, rep, a.o.detected(ctx))
	seen := rep.View(time.Now()).Runnable(a.o.runByOthers())
	seen.NameEnds(a.addresses())
	return seen, nil
}

// addresses are those of the node's pods that have a network of their own.
func (a *agentParts) addresses() view.PodsByAddress {
	all := make(view.PodsByAddress)
	for _, p := range a.watch.List() {
		if at, err := netip.ParseAddr(p.Address); err == nil && !p.HostNetwork && !p.Finished {
			all.Add(at, p.Key())
		}
	}
	return all
}
