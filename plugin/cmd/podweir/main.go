// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command podweir is the operator's tool: it shows and changes what podweir
// does on a node.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "podweir:", err)
		os.Exit(1)
	}
}
