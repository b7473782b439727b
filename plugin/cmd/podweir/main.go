// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command podweir is the operator's tool: it shows and changes what podweir
// does on a node.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		// One line: errors that were joined have one each.
		fmt.Fprintln(os.Stderr, "podweir:", strings.ReplaceAll(err.Error(), "\n", "; "))
		if e, ok := errors.AsType[*exitError](err); ok {
			os.Exit(e.status)
		}
		os.Exit(1)
	}
}
