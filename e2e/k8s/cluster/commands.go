// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/podweir/podweir/e2e/step"
)

// Kubectl runs kubectl as the administrator and returns what it wrote to stdout.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return c.admin(ctx, stdin, "kubectl", args...)
}

// Helm runs helm as the administrator.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	program := "helm"
	if c.Helm3 {
		program = "helm-3"
	}
	return c.admin(ctx, "", program, args...)
}

// Get decodes what kubectl gets.
func (c *Cluster) Get(ctx context.Context, into any, args ...string) (err error) {
	defer step.End(&err)
	out := step.Get(c.Kubectl(ctx, "", append(append([]string{"get"}, args...), "-o", "json")...))
	return json.Unmarshal([]byte(out), into)
}

func (c *Cluster) admin(ctx context.Context, stdin, program string, args ...string) (string, error) {
	// What they keep between two calls belongs to the run.
	env := []string{"HOME=" + c.path("home"), "KUBECONFIG=" + c.path("admin.kubeconfig")}
	return command(ctx, env, stdin, filepath.Join(c.Components, program), args...)
}

// command runs a program and returns what it wrote to stdout; what it wrote to
// stderr is in the error.
func command(ctx context.Context, env []string, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// A Ctrl-C at the terminal is ours to answer.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), err
}
