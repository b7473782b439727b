// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package settings

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/podweir/podweir/plugin/cmd/show"
)

// Main runs a program until it ends or is told to, and returns its exit status: otherwise for an
// error that has none of its own. message is what a user reads of an error.
func Main(root *cobra.Command, message func(error) string, otherwise int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root.ExecuteContext(ctx)
	stop()
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, message(err))
	if e, ok := errors.AsType[*show.ExitError](err); ok {
		return e.Status
	}
	return otherwise
}

// Table adds the flags of the live table, but for the time between two looks.
func Table(f *pflag.FlagSet, l *show.Live) {
	f.IntVar(&l.Count, "count", 0, "number of tables, 0 for no end")
	f.StringVar(&l.Table.Filter, "filter", "", "show only pods with this in namespace/name")
	f.BoolVar(&l.Table.Idle, "idle", false, "show also pods that carry next to nothing")
	f.BoolVar(&l.Table.Flows, "flows", false, "show heavy flows")
}

// CheckFormat returns an error unless a command accepts a value of --output; those in wide accept one more.
func CheckFormat(cmd *cobra.Command, format string, wide ...string) error {
	all := []string{"table", "json"}
	if slices.Contains(wide, cmd.Name()) {
		all = append(all, "wide")
	}
	if cmd.Flags().Lookup("output") != nil && !slices.Contains(all, format) {
		return fmt.Errorf("--output %q is not accepted by %s, want %s", format, cmd.CommandPath(), strings.Join(all, ", "))
	}
	return nil
}
