// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/examine"
	"github.com/podweir/podweir/plugin/terms"
)

// doctorTimeout bounds the whole: a node in trouble must not hold its doctor.
const doctorTimeout = 10 * time.Second

// patience is how many times longer the doctor and each of its questions may take. Tests
// set it.
var patience = 1

func newDoctor(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether podweir can work on this node and beside its CNI",
		Long: "Check whether podweir can work on this node, is wired in, and works beside everything else there. It\n" +
			"changes nothing. Exit status 1 if a check failed, 2 if one could not be answered.",
		Example: "  podweir doctor\n  podweir explain PW602\n  podweir doctor --root /host -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, o) },
	}
	f := cmd.Flags()
	cniFlags(f)
	f.String("delivery", "", "how podweir gets into the set-up of pods, where it was requested: a node does not show nri and watch")
	f.String("health-address", serve.DefaultHealthAddress, "loopback address on which the agent answers /readyz")
	f.BoolP("verbose", "v", false, "list also what is in order, and what was skipped")
	return cmd
}

// deliveries are the ways into the set-up of pods, as words.
func deliveries() []string {
	words := make([]string, len(delivery.Deliveries))
	for i, d := range delivery.Deliveries {
		words[i] = string(d)
	}
	return words
}

func runDoctor(cmd *cobra.Command, o *options) error {
	root := o.v.GetString("root")
	if err := o.checkNode(cmd); err != nil {
		return show.Exit(doctor.ExitUnknown, err.Error())
	}
	if d := o.v.GetString("delivery"); d != "" && !slices.Contains(deliveries(), d) {
		return show.Exit(doctor.ExitUnknown, fmt.Sprintf("--delivery %q is not accepted, want one of %s", d, strings.Join(deliveries(), ", ")))
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "podweir: without root most of the node is out of sight: run as root")
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(patience)*doctorTimeout)
	defer cancel()
	told, installed := delivery.Told(root)
	var handed func(*detect.Node) string // without an installation its defaults are not known
	if installed {
		handed = func(node *detect.Node) string { return delivery.HandedEntry(node, told.Defaults) }
	}
	rep := o.asking().Doctor(ctx, detect.Options{
		ConfDir: o.v.GetString("cni-conf-dir"), BinDir: o.v.GetString("cni-bin-dir"), Runtime: o.v.GetString("runtime"),
		ToldRuntime: told.Runtime,
	}, doctor.Options{Delivery: profiles.Delivery(o.v.GetString("delivery")), Handed: handed, Fight: told.Fight, Run: runBy()})
	out := cmd.OutOrStdout()
	format := doctor.Format{Short: !o.v.GetBool("verbose"), Color: show.Color(out), Explain: terms.Runnable("podweir explain", runBy())}
	return o.end(out, rep, rep.Table(format), func() (int, string) { return rep.Exit(), "doctor: " + rep.Summary() })
}

// envRunBy says how this program is run from where its output is read: the chart sets it in
// the agent's pod, whose commands nobody types on the node.
const envRunBy = "RUN_PODWEIR_BY"

func runBy() string { return os.Getenv(envRunBy) }

// runByOthers is how those who read what the agent says in the cluster run this program.
func (o *options) runByOthers() string {
	if o.v.GetString("pod") == "" {
		return terms.OnPath
	}
	return terms.ByKubectl
}

// runByReaders is how those who read this agent's Events, log and readiness run this program.
func (o *options) runByReaders() string { return cmp.Or(runBy(), o.runByOthers()) }

// examined is the node as the doctor sees it.
func (o *options) examined() *examine.Node {
	return &examine.Node{Paths: o.paths(), Root: o.v.GetString("root"), CRISocket: o.v.GetString("cri-socket"), Patience: patience}
}
