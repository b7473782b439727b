// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command npa drives the client of the AWS Network Policy Agent, which attaches
// and programs its filters, without a cluster: it is the agent, told what to do on stdin.
//
// The proofs of e2e/coexist start it; it is a module of its own so that what
// the agent needs stays out of podweir's.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	// Answers have stdout for themselves: now and then a library of the
	// agent's prints a line.
	answers := os.Stdout
	os.Stdout = os.Stderr
	err := serve(ctx, os.Stdin, answers)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "npa:", err)
		os.Exit(1)
	}
}
