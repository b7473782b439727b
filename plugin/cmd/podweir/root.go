// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/version"
)

// options are what every command shares. Each flag can be given as an
// environment variable PODWEIR_<FLAG> too.
type options struct{ v *viper.Viper }

func (o *options) paths() cni.Paths {
	return cni.Paths{Pins: o.v.GetString("pins"), Run: o.v.GetString("run")}
}

func (o *options) json() bool { return o.v.GetString("output") == "json" }

func (o *options) open() (*cni.Node, error) { return cni.Open(o.paths()) }

func newRoot() *cobra.Command {
	o := &options{v: viper.New()}
	o.v.SetEnvPrefix("podweir")
	o.v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	o.v.AutomaticEnv()
	root := &cobra.Command{
		Use:           "podweir",
		Short:         "Shows and changes how podweir shapes the pods of this node",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.v.BindPFlags(cmd.Flags()); err != nil {
				return fmt.Errorf("read flags: %w", err)
			}
			if err := o.fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if out := o.v.GetString("output"); out != "table" && out != "json" {
				return fmt.Errorf("--output %q is not accepted, want table or json", out)
			}
			return nil
		},
	}
	f := root.PersistentFlags()
	f.StringP("output", "o", "table", "output format: table or json")
	f.String("pins", cni.DefaultPaths.Pins, "directory of the pins, on bpffs")
	f.String("run", cni.DefaultPaths.Run, "directory of probe results and failure records")
	if err := root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined above
	}
	root.AddCommand(newStatus(o), newTop(o), newAttach(o), newDetach(o), newSet(o), newRepair(o), newDoctor(o), newCompat(o),
		newVersion(o))
	root.AddCommand(newInstall(o), newUninstall(o), newGC(o), newAgent(o))
	return root
}

// fromEnvironment gives the flags that are not on the command line the values of
// their environment variables.
func (o *options) fromEnvironment(f *pflag.FlagSet) error {
	var all error
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name == "help" || flag.Changed || !o.v.IsSet(flag.Name) {
			return
		}
		if err := f.Set(flag.Name, o.v.GetString(flag.Name)); err != nil {
			all = errors.Join(all, fmt.Errorf("environment variable of --%s: %w", flag.Name, err))
		}
	})
	return all
}

func newVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Prints the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.json() {
				return printJSON(cmd.OutOrStdout(), map[string]string{"version": version.String()})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
			return err
		},
	}
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
