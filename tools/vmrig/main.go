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
	"syscall"
)

const usage = `usage:
  vmrig test [options] PACKAGE...       privileged tests on every kernel
  vmrig test -tier TIER [options]       those of a tier
  vmrig report -host LOG [RESULTS...]   tests that were skipped, or that no kernel ran
Kernels: 6.1, 6.12, newest. "vmrig COMMAND -h" lists the options.
It is called in the root of the repository; run.sh beside it runs one command on a kernel.
`

// Exit statuses of vmrig itself.
const (
	statusUsage   = 2
	statusTrouble = 125
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := dispatch(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmrig:", err)
	}
	stop()
	os.Exit(status)
}

func dispatch(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return statusUsage, nil
	}
	name, args := args[0], args[1:]
	switch name {
	case "test":
		return outcome(test(ctx, args))
	case "report":
		return outcome(report(args))
	}
	fmt.Fprint(os.Stderr, usage)
	return statusUsage, fmt.Errorf("unknown command %q", name)
}

// outcome turns an error into an exit status.
func outcome(status int, err error) (int, error) {
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return statusTrouble, err
	}
	return status, nil
}
