// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/version"
)

// options are what every command shares. Each flag can be given as an
// environment variable PODWEIR_<FLAG> too.
type options struct{ v *viper.Viper }

func (o *options) paths() engine.Paths {
	return engine.Paths{Pins: o.v.GetString("pins"), Run: o.v.GetString("run")}
}

func (o *options) open() (*engine.Node, error) { return engine.Open(o.paths()) }

// openIfAny opens the node. It returns nil and no error where podweir has no state:
// then nothing is attached.
func (o *options) openIfAny() (*engine.Node, error) {
	node, err := o.open()
	if errors.Is(err, engine.ErrNoState) {
		return nil, nil
	}
	return node, err
}

func newOptions() *options {
	o := &options{v: viper.New()}
	o.v.SetEnvPrefix("podweir")
	o.v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	o.v.AutomaticEnv()
	return o
}

func newRoot() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:           "podweir",
		Short:         "Show and change how podweir limits the pods of this node",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.v.BindPFlags(cmd.Flags()); err != nil {
				return fmt.Errorf("read flags: %w", err)
			}
			if err := o.fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if err := readConfig(o.v.GetString("config"), cmd.Flags(), flagsOf(cmd.Root(), map[string]bool{})); err != nil {
				return err
			}
			return o.checkOutput(cmd)
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	f := root.PersistentFlags()
	f.StringP("output", "o", "table", "output format: table, json or yaml; wide for status")
	f.String("config", "", "YAML file with values for flags, by their names; flags and environment come first")
	f.String("pins", engine.DefaultPaths.Pins, "directory of the pins, on bpffs")
	f.String("run", engine.DefaultPaths.Run, "directory of probe results and failure records")
	complete(root, "output", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return formatsOf(cmd), cobra.ShellCompDirectiveNoFileComp
	})
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
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.machine() {
				return o.print(cmd.OutOrStdout(), map[string]string{"version": version.String()})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
			return err
		},
	}
}
