// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package cni implements the CNI verbs: contract in, contract out, and the one
// decision whether a pod starts unshaped. What it needs is what package engine needs.
package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/terms"
)

// verbTimeout bounds a verb: the time that may pass in waiting for another
// process of the same attachment.
const verbTimeout = 30 * time.Second

// Plugin answers the CNI verbs.
type Plugin struct {
	// Stdout takes the result, Stderr the log.
	Stdout, Stderr io.Writer
	// Paths are where state is kept.
	Paths engine.Paths
	// Strict is [attach.Request.Strict]: for measuring one mode and no other.
	Strict bool
	// Step is [attach.Engine.Step].
	Step func(name string)
}

// SupportedVersions are the CNI specification versions of the plugin.
var SupportedVersions = version.PluginSupports(terms.CNIVersions...)

// Funcs returns the verbs for the CNI skeleton.
func (p *Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add: p.Add, Del: p.Del, Check: p.Check, GC: p.GC, Status: p.Status,
	}
}

// Add shapes the interfaces that the chain made for this attachment and prints
// prevResult as it came.
func (p *Plugin) Add(args *skel.CmdArgs) error {
	namespace, namespaceErr := p.Paths.Namespace(namespaceOf(args.Args))
	cfg, err := netconf.ParseIn(namespace, netconf.Add, args.StdinData)
	if isContract(err) {
		return contractError(err)
	}
	id := idOf(cfg, args)
	log := p.logger(cfg, "ADD", id)
	if namespaceErr != nil {
		log.Error("rates of the namespace not read: the node's rates are used", "error", namespaceErr)
	}
	for _, w := range cfg.Warnings {
		log.Warn("configuration read with a warning", "warning", w)
	}
	for _, d := range cfg.Shaping.Deferred {
		log.Info("limit left to another shaper", "direction", d.Direction.String(), "rate", d.Rate.String(), "shaper", d.To.String())
	}
	// A rate that cannot be read does not cost the other direction its limit.
	unread := err != nil
	if !unread || failOpen(cfg) && cfg.Shaping.Limited() {
		err = errors.Join(err, p.add(log, cfg, id, args))
	}
	if err != nil {
		if !failOpen(cfg) {
			return shapeError(err)
		}
		if unread && cfg.Shaping.Limited() {
			log.Error("pod starts without all of its limits", "error", err, "onError", cfg.OnError.String())
		} else {
			log.Error("pod starts unshaped", "error", err, "onError", cfg.OnError.String())
		}
		p.Paths.RecordFailure(log, id, podOf(args.Args), err)
	} else {
		p.Paths.ClearFailure(id)
	}
	_, err = p.Stdout.Write(append(slices.Clone(cfg.PrevResult), '\n'))
	return err
}

func (p *Plugin) add(log *slog.Logger, cfg *netconf.Config, id attach.ID, args *skel.CmdArgs) error {
	if !cfg.Shaping.Limited() {
		return p.addWithoutLimit(id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), verbTimeout)
	defer cancel()
	node, err := engine.Open(p.Paths)
	if err != nil {
		return err
	}
	defer node.Close()
	node.Step = p.Step
	w := want(cfg, id, args)
	w.Strict = p.Strict
	states, err := node.Ensure(ctx, w)
	if err != nil {
		return err
	}
	for _, s := range states {
		logState(log, s)
	}
	return nil
}

// addWithoutLimit is what most pods of a node get: nothing, unless an earlier
// ADD of the same attachment had limits.
func (p *Plugin) addWithoutLimit(id attach.ID) error {
	if there, err := p.Paths.Attached(id); err != nil || !there {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), verbTimeout)
	defer cancel()
	node, err := engine.Open(p.Paths)
	if err != nil {
		return err
	}
	defer node.Close()
	node.Step = p.Step
	return node.Remove(ctx, id)
}

func idOf(cfg *netconf.Config, args *skel.CmdArgs) attach.ID {
	return attach.ID{Network: cfg.Name, ContainerID: args.ContainerID, IfName: args.IfName}
}

// want names every interface that the chain made in the pod for this ADD; a
// result that tells none means the interface of the attachment.
func want(cfg *netconf.Config, id attach.ID, args *skel.CmdArgs) *attach.Want {
	var names []string
	for _, i := range cfg.Interfaces {
		if i.Sandbox == args.Netns && i.Name != "" && !slices.Contains(names, i.Name) {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		names = []string{id.IfName}
	}
	return &attach.Want{
		ID: id, NetNSPath: args.Netns, Names: names, Config: &cfg.Shaping,
		ReplaceQdisc: cfg.ReplaceQdisc, Pod: podOf(args.Args), By: attach.ByPlugin,
	}
}

// podOf reads "namespace/name" from CNI_ARGS, where every Kubernetes runtime
// puts it; empty if it is not there.
func podOf(cniArgs string) string {
	var namespace, name string
	for pair := range strings.SplitSeq(cniArgs, ";") {
		switch k, v, _ := strings.Cut(pair, "="); k {
		case "K8S_POD_NAMESPACE":
			namespace = v
		case "K8S_POD_NAME":
			name = v
		}
	}
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// namespaceOf reads the pod's namespace from CNI_ARGS; empty if it is not there.
func namespaceOf(cniArgs string) string {
	namespace, _, _ := strings.Cut(podOf(cniArgs), "/")
	return namespace
}

func logState(log *slog.Logger, s *attach.Desired) {
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
		log.Log(context.Background(), level, "pod shaped", "interface", s.Interface.PodName, "direction", d.String(),
			"rate", ds.Params.Rate.String(), "queue", ds.Params.Queue.String(),
			"policy", ds.Params.Policy.String(), "notes", ds.Params.Notes)
	}
}

// Del removes everything of the attachment. It needs nothing but its ID, and
// that things are gone already is no error.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	cfg, err := netconf.Parse(netconf.Del, args.StdinData)
	if err != nil {
		return contractError(err)
	}
	id := idOf(cfg, args)
	p.Paths.ClearFailure(id)
	ctx, cancel := context.WithTimeout(context.Background(), verbTimeout)
	defer cancel()
	node, err := engine.Open(p.Paths)
	if errors.Is(err, engine.ErrNoState) {
		return nil
	}
	if err != nil {
		return shapeError(err)
	}
	defer node.Close()
	node.Step = p.Step
	node.LeaveIFB()
	records, unread := node.Records(id)
	if err := node.Remove(ctx, id); err != nil {
		return shapeError(err)
	}
	if args.Netns == "" || len(records) > 0 && unread == nil {
		return nil
	}
	// Perhaps the record was lost, or is of a release that this one cannot read.
	_, err = node.Sweep(ctx, id, args.Netns, args.IfName)
	return shapeError(err)
}

// Check fails, naming the difference, where anything is not as ADD would make
// it.
func (p *Plugin) Check(args *skel.CmdArgs) error {
	// ADD used the node's rates, too, where those of the namespace cannot be read.
	namespace, _ := p.Paths.Namespace(namespaceOf(args.Args))
	cfg, err := netconf.ParseIn(namespace, netconf.Check, args.StdinData)
	if err != nil {
		return contractError(err)
	}
	id := idOf(cfg, args)
	ctx, cancel := context.WithTimeout(context.Background(), verbTimeout)
	defer cancel()
	node, err := engine.Open(p.Paths)
	if err != nil {
		return shapeError(err)
	}
	defer node.Close()
	if !cfg.Shaping.Limited() {
		records, err := node.Records(id)
		if err == nil && len(records) > 0 {
			err = fmt.Errorf("%v has no limit but is attached", id)
			if left := cfg.Shaping.Left(); left != "" {
				err = fmt.Errorf("%w: %s", err, left)
			}
		}
		return shapeError(err)
	}
	return shapeError(node.Check(ctx, want(cfg, id, args)))
}

// GC removes the attachments of this network that are not in the valid list,
// and nothing else.
func (p *Plugin) GC(args *skel.CmdArgs) error {
	cfg, err := netconf.Parse(netconf.GC, args.StdinData)
	if err != nil {
		return contractError(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), verbTimeout)
	defer cancel()
	node, err := engine.Open(p.Paths)
	if errors.Is(err, engine.ErrNoState) {
		return nil
	}
	if err != nil {
		return shapeError(err)
	}
	defer node.Close()
	node.Step = p.Step
	ids, all := node.Known()
	for _, id := range ids {
		valid := slices.Contains(cfg.Attachments,
			netconf.Attachment{ContainerID: id.ContainerID, IfName: id.IfName})
		if id.Network != cfg.Name || valid {
			continue
		}
		p.Paths.ClearFailure(id)
		all = errors.Join(all, node.Remove(ctx, id))
	}
	return shapeError(all)
}

// Status says whether ADD can shape. A runtime takes a failing STATUS for a
// node that is not ready, so it fails only where the operator chose that no
// pod starts unshaped.
func (p *Plugin) Status(args *skel.CmdArgs) error {
	cfg, err := netconf.Parse(netconf.Status, args.StdinData)
	if isContract(err) {
		return contractError(err)
	}
	if err == nil {
		var node *engine.Node
		if node, err = engine.Open(p.Paths); err == nil {
			node.Close()
			return nil
		}
	}
	if !failOpen(cfg) {
		return types.NewError(codeNotAvailable, "podweir cannot shape", err.Error())
	}
	p.logger(cfg, "STATUS", idOf(cfg, args)).Error("STATUS failed: podweir cannot shape", "error", err)
	return nil
}
