// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command podweir is the operator's tool: it shows and changes what podweir
// does on a node.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/viper"

	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/cmd/settings"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/version"
)

func main() {
	os.Exit(settings.Main(newRoot(), func(err error) string { return "podweir: " + message(err, os.Geteuid()) }, 1))
}

func message(err error, user int) string {
	text := terms.Runnable(show.OneLine(err), runBy())
	if errors.Is(err, fs.ErrPermission) && user != 0 {
		return text + ": run as root"
	}
	return text
}

// options are what every command shares. Each flag can be given as an
// environment variable PODWEIR_<FLAG> too.
type options struct {
	v *viper.Viper
	// pinsNamed says that the command line has --pins, for a directory that is there already.
	pinsNamed bool
}

func (o *options) paths() engine.Paths {
	return engine.Paths{Pins: o.v.GetString("pins"), Run: o.v.GetString("run")}
}

func (o *options) open() (*engine.Node, error) { return engine.Open(o.paths()) }

// openThere opens the node for a command that looks at attachments or changes them. If the
// command line names a directory that does not exist, that is an error: it does not mean that
// the node has no limits.
func (o *options) openThere() (*engine.Node, error) {
	if dir := o.v.GetString("pins"); o.pinsNamed {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("--pins %q: there is no such directory; without the flag it is %s", dir, engine.DefaultPaths.Pins)
		}
	}
	return o.open()
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
			o.pinsNamed = cmd.Flags().Changed("pins") && cmd.Name() != "agent"
			if err := o.v.BindPFlags(cmd.Flags()); err != nil {
				return fmt.Errorf("read flags: %w", err)
			}
			if err := settings.Read(cmd); err != nil {
				return err
			}
			if netns := o.v.GetString("netns"); netns != "" { // a record outlives the directory that a command runs in
				abs, err := filepath.Abs(netns)
				if err != nil {
					return fmt.Errorf("--netns: %w", err)
				}
				o.v.Set("netns", terms.NetNSPath(abs))
			}
			rtnl.ProcessesBelow(o.v.GetString("root")) // the environment has it for commands without the flag
			if err := checkDir("run", o.v.GetString("run"), "podweir's directory below /run"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return settings.CheckFormat(cmd, o.output(), "status")
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	f := root.PersistentFlags()
	f.StringP("output", "o", "table", "output format: table or json; wide for status")
	f.String(settings.Flag, "", settings.Usage)
	f.String("pins", engine.DefaultPaths.Pins, "directory of the pins, on bpffs")
	f.String("run", engine.DefaultPaths.Run, "directory of probe results and failure records")
	root.AddCommand(newStatus(o), newTop(o), newExplain(o), newAttach(o), newDetach(o), newSet(o), newRepair(o), newDoctor(o),
		newVersion(o))
	root.AddCommand(newInstall(o), newUninstall(o), newGC(o), newAgent(o))
	return root
}

func newVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version.String()
			return o.end(cmd.OutOrStdout(), map[string]string{"version": v}, v+"\n", func() (int, string) { return 0, "" })
		},
	}
}

// readsRuntime adds the flags of a command that asks the container runtime for pods, and
// refuses what names no node: with it pods without their limit would be passed over.
func (o *options) readsRuntime(cmd *cobra.Command) {
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.checkNode(cmd) }
	cmd.Flags().String("root", "/", "root directory of the node")
	cmd.Flags().String("cri-socket", "", "socket of the container runtime; the kubelet's, or looked for below the root, if empty")
}

// checkNode refuses flags by which a command asks nobody.
func (o *options) checkNode(cmd *cobra.Command) error {
	if err := checkRoot(o.v.GetString("root")); err != nil {
		return err
	}
	if address := o.v.GetString("health-address"); cmd.Flags().Changed("health-address") && address != "" {
		if err := serve.CheckLoopback(address); err != nil {
			return fmt.Errorf("--health-address: %w", err)
		}
	}
	return nil
}

// checkDir returns an error if what a flag names is no directory.
func checkDir(flag, path, want string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return fmt.Errorf("--%s %q is not accepted, want %s: %w", flag, path, want, err)
	}
	return nil
}
