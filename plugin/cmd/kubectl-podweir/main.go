// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command kubectl-podweir is "kubectl podweir": it shows how podweir limits the pods of
// all nodes of a cluster. It reads what the agents know, through the API server, and
// changes nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/status/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubectl podweir:", show.OneLine(err))
		if e, ok := errors.AsType[*exitError](err); ok {
			os.Exit(e.status)
		}
		os.Exit(cluster.ExitUnknown)
	}
}
