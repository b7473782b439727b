// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command vmrig runs commands and test binaries on kernels that the machine
// does not run, under KVM or by emulation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/podweir/podweir/tools/vmrig/vm"
)

const usage = `usage:
  vmrig run -k KERNEL [options] -- COMMAND  run a command on a kernel, also for "go test -exec"
  vmrig test [options] PACKAGE...           privileged tests on every kernel
  vmrig test -tier TIER [options]           those of a tier
  vmrig report -host LOG [RESULTS...]       tests that were skipped, or that no kernel ran
Kernels: 6.1, 6.12, newest. "vmrig COMMAND -h" lists the options.
`

// Exit statuses of vmrig itself, as timeout(1) and docker(1) have them.
const (
	statusUsage   = 2
	statusHang    = 124
	statusTrouble = 125
)

func main() {
	// Children die with the thread that started them: it must stay.
	runtime.LockOSThread()
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
	case "run":
		return outcome(run(ctx, args))
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
	if hang := (*vm.HangError)(nil); errors.As(err, &hang) {
		return statusHang, err
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return statusTrouble, err
	}
	return status, nil
}

// machine declares the options that size a machine.
func machine(flags *flag.FlagSet) (*vm.Options, error) {
	o := &vm.Options{Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ()}
	flags.IntVar(&o.CPUs, "cpus", 1, "processors")
	flags.IntVar(&o.MemMiB, "mem", 1024, "memory in MiB")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "kill the machine after this long")
	accel := func(name string) (err error) { o.Accel, err = vm.ParseAccel(name); return err }
	flags.Func("accel", "kvm, tcg (emulation) or auto: KVM if a trial boot under it succeeds; the default is "+vm.AccelEnv+", else auto", accel)
	return o, accel(os.Getenv(vm.AccelEnv))
}

func run(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	o, err := machine(flags)
	if err != nil {
		return 0, err
	}
	flags.StringVar(&o.Kernel, "k", "6.12", "kernel: 6.1, 6.12, newest")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	o.Args = flags.Args()
	return boot(ctx, o)
}

func boot(ctx context.Context, o *vm.Options) (int, error) {
	if len(o.Args) == 0 {
		return 0, errors.New("no command to run")
	}
	cache, err := vm.OpenCache()
	if err != nil {
		return 0, err
	}
	if o.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	result, err := cache.Run(ctx, *o)
	for _, line := range result.Complaints {
		fmt.Fprintf(os.Stderr, "vmrig: kernel %s complained: %s\n", o.Kernel, line)
	}
	return result.Status, err
}
