// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// label is on everything that we make in Docker, with the process that made it.
const label = "io.podweir.e2e"

func ownPID() string { return strconv.Itoa(os.Getpid()) }

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

func docker(ctx context.Context, args ...string) (string, error) {
	out, err := command(ctx, nil, "", "docker", args...)
	return strings.TrimSpace(out), err
}

// removeStale removes what processes left that were killed.
func removeStale(ctx context.Context) error {
	return removeLabelled(ctx, func(pid string) bool {
		n, err := strconv.Atoi(pid)
		return err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
	})
}

// removeLabelled removes the containers, their volumes and the networks of
// processes.
func removeLabelled(ctx context.Context, of func(pid string) bool) error {
	var errs []error
	for _, kind := range []struct{ list, remove []string }{
		{[]string{"ps", "-a"}, []string{"rm", "-fv"}},
		{[]string{"network", "ls"}, []string{"network", "rm"}},
	} {
		out, err := docker(ctx, append(kind.list, "--filter", "label="+label,
			"--format", `{{.ID}} {{.Label "`+label+`"}}`)...)
		errs = append(errs, err)
		for line := range strings.Lines(out) {
			id, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
			if of(pid) {
				_, err := docker(ctx, append(kind.remove, id)...)
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
