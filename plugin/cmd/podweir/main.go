// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command podweir is the operator's tool: it shows and changes what podweir
// does on a node.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/terms"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "podweir:", message(err, os.Geteuid()))
		if e, ok := errors.AsType[*exitError](err); ok {
			os.Exit(e.status)
		}
		os.Exit(1)
	}
}

// message is what a user reads of an error.
func message(err error, user int) string {
	text := terms.Runnable(show.OneLine(err), runBy())
	if errors.Is(err, fs.ErrPermission) && user != 0 {
		return text + ": run as root"
	}
	return text
}
