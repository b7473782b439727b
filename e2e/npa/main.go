// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command npa drives the client of the AWS Network Policy Agent, which attaches
// and programs its filters, without a cluster.
//
//	npa compile -dir DIR -headers DIR [-sources DIR]   build the agent's own programs into DIR
//	npa serve                                          be the agent, told what to do on stdin
//
// The proofs of e2e/coexist start it; it is a module of its own so that what
// the agent needs stays out of podweir's.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "npa:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
		args = args[1:]
	}
	switch verb {
	case "compile":
		flags := flag.NewFlagSet("compile", flag.ContinueOnError)
		dir := flags.String("dir", "", "where the objects go")
		headers := flags.String("headers", "", "where libbpf's headers are, in bpf/")
		sources := flags.String("sources", "", "where the agent's module is; if empty, in the module cache")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return compile(ctx, *dir, *headers, *sources)
	case "serve":
		// Answers have stdout for themselves: now and then a library of the
		// agent's prints a line.
		answers := os.Stdout
		os.Stdout = os.Stderr
		return serve(ctx, os.Stdin, answers)
	default:
		return fmt.Errorf("no such verb: %q, want compile or serve", verb)
	}
}
