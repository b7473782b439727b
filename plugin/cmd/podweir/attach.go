// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// limitKeys maps flags to the keys of the network configuration, so that
// both are read by the same code with the same errors.
var limitKeys = []struct{ flag, key, usage string }{
	{"egress", "egressRate", "cap of what the pod sends, as 10M for 10 Mbit/s"},
	{"ingress", "ingressRate", "cap of what the pod receives"},
	{"egress-burst", "egressBurst", "burst in bits"},
	{"ingress-burst", "ingressBurst", "burst in bits"},
	{"enforce", "enforce", "limit, or observe: measure and count what exceeds the caps, and hold nothing"},
}

func limitFlags(cmd *cobra.Command) {
	for _, k := range limitKeys {
		cmd.Flags().String(k.flag, "", k.usage)
	}
	cmd.Flags().String("root", "/", "root directory of the node, to look for its CNI")
}

// limits reads the flags that were given as a network configuration. podweir attaches as it
// does for the pods of a node with this profile and these runtimes, where neither the flags nor
// with say how; p may be nil.
func limits(f *pflag.FlagSet, with []string, p *profiles.Profile, r profiles.Runtimes) (cfg *netconf.Config, notes []string, err error) {
	conf, err := parseKeys("--with", with)
	if err != nil {
		return nil, nil, err
	}
	for key := range conf {
		if keys := netconf.Keys(); !slices.Contains(keys, key) {
			return nil, nil, fmt.Errorf("--with %q is no key of the configuration%s", key, terms.DidYouMean(key, keys))
		}
	}
	maps.Copy(conf, map[string]any{
		"cniVersion": "1.0.0", "name": engine.ManualNetwork, "type": "podweir-cni", "onError": "closed",
		"prevResult": map[string]any{"cniVersion": "1.0.0"},
	})
	for _, k := range limitKeys {
		if of, burst := strings.CutSuffix(k.flag, "-burst"); burst && f.Changed(k.flag) && !f.Changed(of) {
			return nil, nil, fmt.Errorf("--%s is a part of --%s, which is not given", k.flag, of)
		}
		if f.Changed(k.flag) {
			conf[k.key], _ = f.GetString(k.flag)
		}
	}
	notes = profiles.Fill(p, r, conf)
	b, err := json.Marshal(conf)
	if err != nil {
		return nil, nil, fmt.Errorf("encode flags: %w", err)
	}
	cfg, err = netconf.ParseStrict(netconf.Add, b)
	for _, d := range terms.Directions {
		if name := d.String(); err == nil && f.Changed(name) && cfg.Shaping.Limit(d) == nil { // in a configuration 0 is no limit
			zero, _ := f.GetString(name)
			err = &netconf.LimitError{Fields: []*netconf.FieldError{{Field: name + "Rate", Value: zero, Accepted: units.AcceptedRate}}}
		}
	}
	if bad, ok := errors.AsType[*netconf.LimitError](err); ok {
		return nil, nil, flagError(bad)
	}
	return cfg, notes, err
}

// flagError names the flags where the error of a configuration names their keys.
func flagError(bad *netconf.LimitError) error {
	var names []string
	for _, k := range limitKeys {
		names = append(names, k.key, "--"+k.flag)
	}
	asFlags := strings.NewReplacer(names...)
	out := &netconf.LimitError{}
	for _, f := range bad.Fields {
		out.Fields = append(out.Fields, &netconf.FieldError{
			Field: asFlags.Replace(f.Field), Value: f.Value, Accepted: f.Accepted,
		})
	}
	return out
}

func podFlags(f *pflag.FlagSet) {
	f.String("netns", "", "network namespace of the pod, as /run/netns/x")
	f.String("ifname", "eth0", "interface in the pod")
}

func manualID(netns, ifname string) (attach.ID, error) {
	ns, err := rtnl.OpenNetNS(netns)
	if err != nil {
		return attach.ID{}, err
	}
	defer func() { _ = ns.Close() }()
	return engine.ManualID(ns.Inode(), ifname), nil
}

func newAttach(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "attach --netns PATH [--ifname eth0] [--egress RATE] [--ingress RATE]",
		Short:   "Shape one interface by hand",
		Example: "  podweir attach --netns /run/netns/x --ifname eth0 --egress 10M --ingress 10M",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			netns, ifname := o.v.GetString("netns"), o.v.GetString("ifname")
			here := o.detected(cmd.Context())
			with, err := cmd.Flags().GetStringArray("with")
			if err != nil {
				return err
			}
			cfg, notes, err := limits(cmd.Flags(), with, here.Profile, here.Runtimes())
			if err != nil {
				return err
			}
			if !cfg.Shaping.Limited() {
				return fmt.Errorf("no limit: give --egress, --ingress or both")
			}
			if err := heed(here.Profile, &cfg.Shaping); err != nil {
				return err
			}
			id, err := manualID(netns, ifname)
			if err != nil {
				return err
			}
			node, err := o.open()
			if err != nil {
				return err
			}
			defer node.Close()
			want := &apply.Want{
				ID: id, NetNSPath: netns, Names: []string{ifname}, Config: &cfg.Shaping, ReplaceQdisc: cfg.ReplaceQdisc,
				By: apply.ByHand, Strict: true,
			}
			states, err := node.Ensure(cmd.Context(), want)
			if held, is := errors.AsType[*apply.HeldError](err); is {
				return fmt.Errorf("%s in %s is shaped as %v: change it by `podweir set`", ifname, netns, held.By)
			}
			if err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", note)
			}
			if err := noteSet(node, id, states); err != nil {
				return err
			}
			return printStates(o, cmd.OutOrStdout(), states)
		},
	}
	podFlags(cmd.Flags())
	limitFlags(cmd)
	cmd.Flags().StringArray("with", nil, "KEY=VALUE of the plugin's configuration, as policy=elephants; may be repeated")
	_ = cmd.MarkFlagRequired("netns")
	return cmd
}

// noteSet notes at each direction that it is as `podweir set` made it, not as was requested.
func noteSet(node *engine.Node, id attach.ID, states []*attach.Desired) error {
	records, err := node.Records(id)
	if err != nil || len(records) == 0 || records[0].Asked == nil { // it is of one interface
		return err
	}
	asked, cfg := records[0].Asked, &records[0].Config
	for _, s := range states {
		for d, state := range s.Directions {
			if asked.Observe != cfg.Observe || !reflect.DeepEqual(asked.Limit(d), cfg.Limit(d)) {
				state.Params.Notes = append(state.Params.Notes, "`podweir set` holds, and the same limits once more do not undo it: `podweir set --clear` does")
			}
		}
	}
	return nil
}

// detected is what podweir knows of the node that it runs on.
func (o *options) detected(ctx context.Context) *detect.Node {
	node := o.examined()
	return detect.Read(ctx, detect.HostRoot(node.Root), detect.Options{Live: node})
}

// heed refuses by hand the modes that the node's CNI rules out, as podweir's entry in the
// chain does for pods.
func heed(p *profiles.Profile, cfg *shaping.Config) error {
	if p == nil {
		return nil
	}
	for direction, at := range map[terms.Direction]*profiles.Attach{terms.Egress: &p.Egress, terms.Ingress: &p.Ingress} {
		rules := at.Rules()
		if limit := cfg.Limit(direction); limit != nil {
			if err := rules.Mode(limit.Mode); err != nil {
				return fmt.Errorf("%v: %w", direction, err)
			}
		}
	}
	return nil
}

func newDetach(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "detach (--netns PATH | --container ID) [--ifname eth0]",
		Short: "Remove the limits of one interface or one pod",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := o.openThere()
			if err != nil {
				return err
			}
			defer node.Close()
			ids, err := selected(o, node)
			if errors.Is(err, errNotSelected) && o.v.GetString("netns") != "" {
				return sweep(cmd, o, node, err)
			}
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := node.Remove(cmd.Context(), id); err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "detached %v\n", id)
			}
			return nil
		},
	}
	podFlags(cmd.Flags())
	selectFlags(cmd)
	return cmd
}

// sweep takes off what has no record; notSelected is the error if there is
// nothing.
func sweep(cmd *cobra.Command, o *options, node *engine.Node, notSelected error) error {
	netns, ifname := o.v.GetString("netns"), o.v.GetString("ifname")
	id, err := manualID(netns, ifname)
	if err != nil {
		return err
	}
	removed, err := node.Sweep(cmd.Context(), id, netns, ifname)
	for _, what := range removed {
		fmt.Fprintf(cmd.ErrOrStderr(), "removed %s, of which there was no record\n", what)
	}
	if err == nil && len(removed) == 0 {
		return notSelected
	}
	return err
}

// errNotSelected means that no attachment is what the flags name.
var errNotSelected = errors.New("nothing is attached")

func selectFlags(cmd *cobra.Command) {
	cmd.Flags().String("container", "", "container ID of the pod's sandbox, or its beginning")
	cmd.Flags().String("pod", "", "pod as namespace/name")
}

// selected returns the attachments that the flags name: at least one. Without --netns they are of all interfaces, unless
// one is named.
func selected(o *options, node *engine.Node) ([]attach.ID, error) {
	netns, ifname := o.v.GetString("netns"), o.v.GetString("ifname")
	container, pod := o.v.GetString("container"), o.v.GetString("pod")
	if netns == "" && container == "" && pod == "" {
		return nil, fmt.Errorf("name the pod by --netns, --container or --pod")
	}
	if netns == "" && !o.v.IsSet("ifname") {
		ifname = ""
	}
	all, err := node.List()
	if err != nil {
		return nil, err
	}
	if container, err = wholeContainer(all, container); err != nil {
		return nil, err
	}
	inode := uint64(0)
	if ns, err := rtnl.OpenNetNS(netns); err == nil { // one that is gone has its path alone
		inode = ns.Inode()
		_ = ns.Close()
	}
	var ids []attach.ID
	for _, id := range all {
		if container != "" && id.ContainerID != container {
			continue
		}
		if netns != "" || pod != "" || ifname != "" {
			records, err := node.Records(id)
			if err != nil && !errors.Is(err, apply.ErrUnknownRecord) {
				return nil, err
			}
			if !matches(node, records, netns, inode, ifname, pod) {
				continue
			}
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		err = errNotSelected
		for _, name := range []string{"netns", "container", "pod", "ifname"} {
			if value := o.v.GetString(name); value != "" && o.v.IsSet(name) {
				err = fmt.Errorf("%w for --%s %q", err, name, value)
			}
		}
		return nil, err
	}
	return ids, nil
}

// wholeContainer returns the container ID that begins so, the text itself if none does. An
// error if several do: a command would change pods that nobody named.
func wholeContainer(all []attach.ID, beginning string) (string, error) {
	var found []string
	for _, id := range all {
		switch {
		case id.ContainerID == beginning:
			return beginning, nil
		case strings.HasPrefix(id.ContainerID, beginning) && !slices.Contains(found, id.ContainerID):
			found = append(found, id.ContainerID)
		}
	}
	switch {
	case beginning == "" || len(found) == 0:
		return beginning, nil
	case len(found) > 1:
		slices.Sort(found)
		return "", fmt.Errorf("--container %q is not accepted, %d containers begin so: %s", beginning, len(found), strings.Join(found, ", "))
	}
	return found[0], nil
}

// matches says whether a record is of the namespace, the pod and the interface, by the name that it was attached by, then
// or now; "" is any. A namespace may have several paths.
func matches(node *engine.Node, records []*apply.Record, netns string, inode uint64, ifname, pod string) bool {
	for _, r := range records {
		if pod != "" && r.Pod != pod {
			continue
		}
		now, err := node.Refind(r)
		here := netns == "" || r.Interface.NetNSPath == netns || err == nil && r.Interface.NetNSInode == inode
		if here && (ifname == "" || r.ID.IfName == ifname || r.Interface.PodName == ifname || err == nil && now.Name() == ifname) {
			return true
		}
	}
	return false
}

func newSet(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set (--netns PATH | --container ID | --pod NAMESPACE/NAME) [--egress RATE] [--ingress RATE] [--enforce observe] [--clear]",
		Short: "Change the limits of a running pod without detaching",
		Long: "Change the limits of a running pod; packets that wait stay in the queue. The change lasts until the pod's own\n" +
			"annotation changes, or until --clear.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := limits(cmd.Flags(), nil, nil, profiles.Runtimes{})
			if err != nil {
				return err
			}
			node, err := o.openThere()
			if err != nil {
				return err
			}
			defer node.Close()
			ids, err := selected(o, node)
			if err != nil {
				return err
			}
			var all []*attach.Desired
			var failed error
			for _, id := range ids { // one that is gone costs the others nothing
				var states []*attach.Desired
				placed := cfg
				if o.v.GetBool("clear") {
					states, err = node.Clear(cmd.Context(), id)
				} else if placed, err = o.placed(cmd, node, id, cfg); err == nil {
					states, err = node.Set(cmd.Context(), id, func(c *shaping.Config) error {
						return change(c, &placed.Shaping, cmd.Flags())
					})
				}
				all, failed = append(all, states...), errors.Join(failed, err)
			}
			if len(all) > 0 || failed == nil {
				failed = errors.Join(failed, printStates(o, cmd.OutOrStdout(), all))
			}
			return failed
		},
	}
	podFlags(cmd.Flags())
	selectFlags(cmd)
	limitFlags(cmd)
	cmd.Flags().Bool("clear", false, "take back what set changed")
	cmd.MarkFlagsMutuallyExclusive("clear", "egress")
	cmd.MarkFlagsMutuallyExclusive("clear", "ingress")
	cmd.MarkFlagsMutuallyExclusive("clear", "enforce")
	return cmd
}

// placed reads the limits as the node's CNI wants them, if an attachment gets one in a direction that had
// none: where that is kept is to be decided.
func (o *options) placed(cmd *cobra.Command, node *engine.Node, id attach.ID, cfg *netconf.Config) (*netconf.Config, error) {
	records, err := node.Records(id)
	for _, r := range records {
		if cfg.Shaping.Egress != nil && r.Config.Egress == nil || cfg.Shaping.Ingress != nil && r.Config.Ingress == nil {
			here := o.detected(cmd.Context())
			cfg, _, err = limits(cmd.Flags(), nil, here.Profile, here.Runtimes())
			return cfg, err
		}
	}
	return cfg, err
}

// change puts the given rates and bursts into c. A direction that has no limit yet gets
// the defaults of the other settings.
func change(c, given *shaping.Config, f *pflag.FlagSet) error {
	if given.Egress == nil && given.Ingress == nil && !f.Changed("enforce") {
		return fmt.Errorf("nothing to change: give --egress, --ingress or both, --enforce, or --clear")
	}
	if f.Changed("enforce") {
		c.Observe = given.Observe
	}
	c.Egress, c.Ingress = merge(c.Egress, given.Egress), merge(c.Ingress, given.Ingress)
	return nil
}

// merge takes the new rate and burst.
func merge(old, given *shaping.Limit) *shaping.Limit {
	if old == nil || given == nil {
		return cmp.Or(given, old)
	}
	out := *old
	out.Rate, out.Burst = given.Rate, given.Burst
	return &out
}

// stateLine is one direction as attach and set print it.
type stateLine struct {
	Interface string `json:"interface"`
	terms.Limit
	Notes []string `json:"notes,omitempty"`
}

func printStates(o *options, w io.Writer, states []*attach.Desired) error {
	lines := []stateLine{}
	for _, s := range states {
		for _, d := range terms.Directions {
			if ds := s.Directions[d]; ds != nil {
				lines = append(lines, stateLine{s.Interface.PodName, ds.Params.Limit(), ds.Params.Notes})
			}
		}
	}
	if o.machine() {
		return o.print(w, lines)
	}
	for _, l := range lines {
		queue := "queue " + l.Queue.String()
		if l.Observed() {
			queue = "observed only"
		}
		fmt.Fprintf(w, "%s %s: %v, %s, policy %s\n", l.Interface, l.Direction, l.Rate, queue, l.Policy)
		for _, n := range l.Notes {
			fmt.Fprintf(runnableWriter{w}, "  note: %s\n", n)
		}
	}
	return nil
}
