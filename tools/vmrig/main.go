// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command vmrig runs privileged tests on kernels that the machine does not run, and says
// which each kernel ran and skipped. setup.sh fetches the kernels, and run.sh boots one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/podweir/podweir/e2e/step"
)

const usage = `usage:
  vmrig test [options] PACKAGE...       privileged tests on every kernel
  vmrig test -tier TIER [options]       those of a tier
  vmrig report -host LOG [RESULTS...]   tests that were skipped, or that no kernel ran
Kernels: 6.1, 6.12, newest. "vmrig COMMAND -h" lists the options.
It is called in the root of the repository; run.sh beside it runs one command on a kernel.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := step.Run(func() { dispatch(ctx, os.Args[1:]) })
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "vmrig:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch name {
	case "test":
		test(ctx, args)
	case "report":
		report(args)
	default:
		fmt.Fprint(os.Stderr, usage)
		step.OK(fmt.Errorf("no command %q", name))
	}
}

// flawless ends the command if there are faults.
func flawless(faults []string) {
	if len(faults) > 0 {
		step.OK(errors.New(strings.Join(faults, "\n")))
	}
}
