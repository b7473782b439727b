// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command kubectl-podweir is "kubectl podweir": it shows how podweir limits the pods of
// all nodes of a cluster. It reads what the agents know, through the API server, and
// changes nothing.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/cmd/settings"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/version"
)

func main() {
	os.Exit(settings.Main(newRoot(), func(err error) string { return "kubectl podweir: " + show.OneLine(err) }, cluster.ExitUnknown))
}

// options are what every command shares.
type options struct {
	kubeconfig, context, namespace, node, output string
	timeout                                      time.Duration
}

func newRoot() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "kubectl-podweir",
		Short: "Show how podweir limits the pods of all nodes",
		Long: "Show how podweir limits the pods of all nodes of the cluster. It reads what the agents know, through the API\n" +
			"server, and changes nothing. A node that does not answer is unknown, not fine.",
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl podweir"},
		Version:      version.String(),
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := settings.Read(cmd); err != nil {
				return err
			}
			if err := settings.CheckFormat(cmd, o.output, "status", "doctor", "plan"); err != nil {
				return err
			}
			if o.timeout < time.Second {
				return fmt.Errorf("--request-timeout %v is not accepted, want 1s or more", o.timeout)
			}
			return nil
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	f := root.PersistentFlags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; KUBECONFIG or ~/.kube/config if empty")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig; the current one if empty")
	f.StringVarP(&o.namespace, "namespace", "n", defaultNamespace, "namespace where podweir is installed")
	f.String(settings.Flag, "", settings.Usage)
	f.StringVar(&o.node, "node", "", "show only this node")
	f.StringVarP(&o.output, "output", "o", "table", "output format: table or json; wide for status, doctor and plan")
	f.DurationVar(&o.timeout, "request-timeout", 10*time.Second, "how long one node or the API server may take to answer")
	root.AddCommand(newStatus(o), newTop(o), newDoctor(o), newExplain(o), newPlan(o), newExec(o))
	return root
}

// defaultNamespace is where the chart's documentation installs podweir.
const defaultNamespace = "kube-system"

func (o *options) client() (*client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // its text names a variable that nobody sets
		err = o.noCluster(rules)
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return newClient(config, o)
}

// noCluster says of which context there is no cluster, and which contexts there are.
func (o *options) noCluster(rules *clientcmd.ClientConfigLoadingRules) error {
	all, err := rules.Load()
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: no cluster of the context %q, want one of %q (--context), or another file (--kubeconfig)",
		strings.Join(rules.GetLoadingPrecedence(), ", "), cmp.Or(o.context, all.CurrentContext), slices.Sorted(maps.Keys(all.Contexts)))
}

func (o *options) look(ctx context.Context) (*cluster.Nodes, error) {
	c, err := o.client()
	if err != nil {
		return nil, err
	}
	return c.look(ctx)
}

// end writes what was found out, and returns the error of an exit status.
func (o *options) end(cmd *cobra.Command, found any, text string, exit func() (status int, why string)) error {
	return show.End(cmd.OutOrStdout(), o.output, found, text, exit)
}

func newStatus(o *options) *cobra.Command {
	var broken bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which pods are limited as they should be, and why others are not",
		Long: "Show which pods of the cluster are limited as they should be. Nodes that did not answer come first, then each pod\n" +
			"that is not limited, with the cause and what to do; the others are counted. Exit status 1 if a pod is not limited\n" +
			"as it should be or an agent is not ready, 2 if a node is unknown.",
		Example: "  kubectl podweir status\n  kubectl podweir status --node n7 -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := o.look(cmd.Context())
			if err != nil {
				return err
			}
			text := nodes.Status(time.Now(), broken)
			if o.output == "wide" {
				text = nodes.Wide(time.Now(), broken)
			}
			return o.end(cmd, nodes, text, nodes.StatusExit)
		},
	}
	cmd.Flags().BoolVar(&broken, "broken", false, "show only what is not as it should be")
	return cmd
}

func newDoctor(o *options) *cobra.Command {
	var verbose bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what the doctors of all nodes found",
		Long: "Show what the doctor of each node found when it looked last, by default within the last five minutes: each\n" +
			"problem once, with the nodes that have it. --node shows one node alone; -v lists also what is in order and what\n" +
			"was skipped. Exit status 1 if a check failed, 2 if a check or a node is unknown.",
		Example: "  kubectl podweir doctor\n  kubectl podweir doctor --node n7 -v\n  kubectl podweir explain PW602",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := o.look(cmd.Context())
			if err != nil {
				return err
			}
			format := doctor.Format{
				Short: !verbose && o.output != "wide", Color: show.Color(cmd.OutOrStdout()), Explain: "kubectl podweir explain",
			}
			return o.end(cmd, nodes, nodes.Doctor(time.Now(), format), nodes.DoctorExit)
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list also what is in order, and what was skipped")
	return cmd
}

// newExec runs a command where podweir's program is: the cures that other commands print
// begin so.
func newExec(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "exec NODE -- COMMAND [ARGUMENT]...",
		Short: "Run a command of podweir's on a node, in the agent's pod",
		Long: "Run a command in the pod of the agent on a node, by kubectl exec: the nodes have no podweir on their PATH. Who runs\n" +
			"it needs the rights to get pods and to create pods/exec there. The exit status is the command's.",
		Example: "  kubectl podweir exec n7 -- podweir repair --dry-run\n  kubectl podweir exec n7 -- podweir gc",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) == 1 { // flags before it would not reach the command
				return errors.New("want a node, -- and a command, as exec n7 -- podweir gc")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			c.node = args[0]
			all, err := c.agents(cmd.Context())
			switch {
			case err != nil:
				return err
			case len(all) == 0:
				return fmt.Errorf("node %s has no agent of podweir's in the namespace %s (-n names another one)", args[0], c.namespace)
			}
			run := exec.CommandContext(cmd.Context(), "kubectl", slices.Concat(o.flags(), []string{"exec", "--stdin", all[0].pod, "--"}, args[1:])...)
			run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			err = run.Run()
			if failed, ok := errors.AsType[*exec.ExitError](err); ok {
				return show.Exit(failed.ExitCode(), fmt.Sprintf("kubectl exec in pod %s ended with status %d", all[0].pod, failed.ExitCode()))
			}
			return err
		},
	}
}

// flags name the cluster and the namespace to kubectl and to this command.
func (o *options) flags() []string {
	var args []string
	if o.kubeconfig != "" {
		args = append(args, "--kubeconfig", o.kubeconfig)
	}
	if o.context != "" {
		args = append(args, "--context", o.context)
	}
	return append(args, "-n", o.namespace)
}

func newPlan(o *options) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what would change for which pods if observed limits were enforced",
		Long: "Show what would change for which pods if the limits that are observed only (enforce: observe) were enforced:\n" +
			"which pods would be limited and to what, which would lose packets or wait now, by the counters of two looks that\n" +
			"are 2 s apart, and which requests are not met as written. It changes nothing. Exit status 2 if a node is unknown.",
		Example: "  kubectl podweir plan\n  kubectl podweir plan --pod-namespace team-a -o wide\n  kubectl podweir plan --node n7 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.Contains(namespace, "/") {
				return fmt.Errorf("--pod-namespace %q is not accepted, want the name of a namespace", namespace)
			}
			return plan(cmd, o, namespace)
		},
	}
	cmd.Flags().StringVar(&namespace, "pod-namespace", "", "plan only for the pods of this namespace; all if empty")
	return cmd
}

func plan(cmd *cobra.Command, o *options, namespace string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	before, err := c.look(cmd.Context())
	if err != nil {
		return err
	}
	now, err := c.lookAgain(cmd.Context())
	if err != nil {
		return err
	}
	p := cluster.MakePlan(before, now, namespace)
	return o.end(cmd, p, p.Text(o.output == "wide"), p.Exit)
}
