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

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// Plugin answers the CNI verbs.
type Plugin struct {
	// Stdout takes the result, Stderr the log.
	Stdout, Stderr io.Writer
	// Paths are where state is kept.
	Paths engine.Paths
	// Strict is [attach.Request.Strict]: for measuring one mode and no other.
	Strict bool
	// Step is [apply.Executor.Step].
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
	added := engine.Add(context.Background(), &engine.Adding{
		ContainerID: args.ContainerID, IfName: args.IfName, NetNSPath: args.Netns, Pod: podOf(args.Args),
		By: apply.ByPlugin, Strict: p.Strict, Paths: p.Paths, Open: p.open,
		Read:       func() (*netconf.Config, error) { return p.read(netconf.Add, args) },
		Interfaces: func(c *netconf.Config) []string { return interfaces(c, args) },
		Log:        func(c *netconf.Config, id attach.ID) *slog.Logger { return p.logger(c, "ADD", id) },
	})
	if added.Refuse {
		return contractError(added.Err)
	}
	_, err := p.Stdout.Write(append(slices.Clone(added.Config.PrevResult), '\n'))
	return err
}

// read reads what the pod of a call is to have. Where the rates of its namespace cannot
// be read, those of the node are used.
func (p *Plugin) read(command netconf.Command, args *skel.CmdArgs) (*netconf.Config, error) {
	name, _, _ := strings.Cut(podOf(args.Args), "/")
	namespace, unread := p.Paths.Mail().Namespace(name)
	cfg, err := netconf.ParseIn(namespace, command, args.StdinData)
	if unread != nil {
		cfg.Warnings = append(cfg.Warnings, fmt.Sprintf("%v: the node's rates are used", unread))
	}
	return cfg, err
}

// logger writes to stderr, which the runtime keeps; never to stdout, which is the result.
func (p *Plugin) logger(cfg *netconf.Config, verb string, id attach.ID) *slog.Logger {
	h := slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel})
	return slog.New(h).With("verb", verb, "network", id.Network, "containerID", id.ContainerID, "ifName", id.IfName)
}

func (p *Plugin) open() (*engine.Node, error) {
	node, err := engine.Open(p.Paths)
	if err == nil {
		node.Step = p.Step
		node.Single()
	}
	return node, err
}

func idOf(cfg *netconf.Config, args *skel.CmdArgs) attach.ID {
	return attach.ID{Network: cfg.Name, ContainerID: args.ContainerID, IfName: args.IfName}
}

// interfaces are that of the attachment, which a result need not tell, and those that the chain
// made beside it in the pod for this ADD.
func interfaces(cfg *netconf.Config, args *skel.CmdArgs) []string {
	names := []string{args.IfName}
	for _, i := range cfg.Interfaces {
		if i.Name != "" && !slices.Contains(names, i.Name) && rtnl.SameNetNS(i.Sandbox, args.Netns) {
			names = append(names, i.Name)
		}
	}
	return names
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

// Del removes everything of the attachment. It needs nothing but its ID, and
// that things are gone already is no error.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	cfg, err := netconf.Parse(netconf.Del, args.StdinData)
	if err != nil {
		return contractError(err)
	}
	id := idOf(cfg, args)
	p.Paths.Mail().ClearFailure(id)
	ctx := context.Background()
	node, err := p.open()
	if errors.Is(err, engine.ErrNoState) {
		return nil
	}
	if err != nil {
		return shapeError(err)
	}
	defer node.Close()
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
	cfg, err := p.read(netconf.Check, args)
	if err != nil {
		return contractError(err)
	}
	id := idOf(cfg, args)
	ctx := context.Background()
	node, err := p.open()
	if err != nil {
		return shapeError(err)
	}
	defer node.Close()
	if node.OfAnotherEntry(cfg, id) {
		return nil // the other entry's CHECK compares
	}
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
	return shapeError(node.Check(ctx, &apply.Want{
		ID: id, NetNSPath: terms.NetNSPath(args.Netns), Names: interfaces(cfg, args), Config: &cfg.Shaping, ReplaceQdisc: cfg.ReplaceQdisc,
	}))
}

// GC removes the attachments of this network that are not in the valid list,
// and nothing else. A container that has another attachment in it runs: what is there may be of
// a second network of this name.
func (p *Plugin) GC(args *skel.CmdArgs) error {
	cfg, err := netconf.Parse(netconf.GC, args.StdinData)
	if err != nil {
		return contractError(err)
	}
	ctx := context.Background()
	node, err := p.open()
	if errors.Is(err, engine.ErrNoState) {
		return nil
	}
	if err != nil {
		return shapeError(err)
	}
	defer node.Close()
	ids, all := node.Known()
	for _, id := range ids {
		valid := slices.Contains(cfg.Attachments, netconf.Attachment{ContainerID: id.ContainerID, IfName: id.IfName})
		runs := func(a netconf.Attachment) bool { return a.ContainerID == id.ContainerID }
		switch {
		case id.Network != cfg.Name || valid:
		case slices.ContainsFunc(cfg.Attachments, runs):
			removed, err := node.RemoveGone(ctx, id)
			if removed { // else what was said of it may be of a pod that runs
				p.Paths.Mail().ClearFailure(id)
			}
			if !errors.Is(err, apply.ErrUnknownRecord) { // one that cannot be read is left, not a failure of GC
				all = errors.Join(all, err)
			}
		default:
			p.Paths.Mail().ClearFailure(id)
			all = errors.Join(all, node.Remove(ctx, id))
		}
	}
	return shapeError(all)
}

// Status says whether ADD can shape. A runtime takes a failing STATUS for a
// node that is not ready, so it fails only where the operator chose that no
// pod starts unshaped.
func (p *Plugin) Status(args *skel.CmdArgs) error {
	cfg, err := netconf.Parse(netconf.Status, args.StdinData)
	if netconf.IsContract(err) {
		return contractError(err)
	}
	if err == nil {
		var node *engine.Node
		if node, err = engine.Open(p.Paths); err == nil {
			defer node.Close()
			if err = node.Writable(); err == nil {
				return nil
			}
		}
	}
	if !cfg.FailOpen() {
		return types.NewError(codeNotAvailable, "podweir cannot shape", err.Error())
	}
	p.logger(cfg, "STATUS", idOf(cfg, args)).Error("STATUS failed: podweir cannot shape", "error", err)
	return nil
}
