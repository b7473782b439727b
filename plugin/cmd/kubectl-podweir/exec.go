// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"
)

// newExec runs a command where podweir's program is: the cures that other commands print
// begin so.
func newExec(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "exec NODE -- COMMAND [ARGUMENT]...",
		Short: "Run a command of podweir's on a node, in the agent's pod",
		Long: "Run a command in the pod of the agent on a node, by kubectl exec: the nodes have no podweir on their PATH. Who runs\n" +
			"it needs the right to create pods/exec there. The exit status is the command's.",
		Example: "  kubectl podweir exec n7 -- podweir repair --dry-run\n  kubectl podweir exec n7 -- podweir gc",
		Args:    cobra.MinimumNArgs(2),
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
			run := exec.CommandContext(cmd.Context(), "kubectl", o.execArgs(all[0].pod, args[1:])...)
			run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			err = run.Run()
			if failed, ok := errors.AsType[*exec.ExitError](err); ok {
				return exit(failed.ExitCode(), fmt.Sprintf("the command in pod %s ended with status %d", all[0].pod, failed.ExitCode()))
			}
			return err
		},
	}
}

// execArgs are those of kubectl, for the cluster that the flags name.
func (o *options) execArgs(pod string, command []string) []string {
	var args []string
	if o.kubeconfig != "" {
		args = append(args, "--kubeconfig", o.kubeconfig)
	}
	if o.context != "" {
		args = append(args, "--context", o.context)
	}
	return slices.Concat(args, []string{"--namespace", o.namespace, "exec", "--stdin", pod, "--"}, command)
}
