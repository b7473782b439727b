// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
)

func deliveryFlags(f *pflag.FlagSet) {
	cniFlags(f)
	f.String("delivery", string(delivery.Auto), "how podweir gets into the set-up of pods: "+strings.Join(deliveries(), ", "))
	f.String("binary", "", "the podweir-cni to install; the one beside this program if empty")
	f.StringArray("default", nil, "KEY=VALUE of the plugin's configuration for all pods of the node; may be repeated")
}

// cniFlags are those that say where the node, its CNI and its runtime are.
func cniFlags(f *pflag.FlagSet) {
	f.String("root", "/", "root directory of the node")
	f.String("cni-conf-dir", "", "directory of conflists below the root; looked for if empty")
	f.String("cni-bin-dir", "", "directory of plugins below the root; looked for if empty")
	f.String("runtime", "", "container runtime and version, as containerd://2.1.3; looked for if empty")
	f.String("cri-socket", "", "socket of the container runtime; the kubelet's, or looked for below the root, if empty")
}

// checkRoot returns an error if the root is not a directory.
func checkRoot(root string) error {
	return checkDir("root", root, "the root directory of the node")
}

// deliveryConfig reads the flags. The log is that of a command.
func deliveryConfig(o *options, cmd *cobra.Command) (c delivery.Config, err error) {
	c = delivery.Config{
		Root: o.v.GetString("root"), ConfDir: o.v.GetString("cni-conf-dir"), BinDir: o.v.GetString("cni-bin-dir"),
		Runtime: o.v.GetString("runtime"), Binary: o.v.GetString("binary"),
		Delivery: profiles.Delivery(o.v.GetString("delivery")), Live: o.examined(),
		Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if err := checkRoot(c.Root); err != nil || cmd.Flags().Lookup("default") == nil {
		return c, err
	}
	given, err := cmd.Flags().GetStringArray("default")
	if err == nil {
		c.Defaults, err = parseKeys("--default", given)
	}
	return c, err
}

func newManager(o *options, cmd *cobra.Command) (*delivery.Manager, error) {
	config, err := deliveryConfig(o, cmd)
	if err != nil {
		return nil, err
	}
	return delivery.New(config)
}

// parseKeys reads KEY=VALUE, as a flag gives it. A value that is JSON and no number is taken as
// such, so that lists and booleans can be given.
func parseKeys(flag string, given []string) (map[string]any, error) {
	out := map[string]any{}
	for _, pair := range given {
		key, text, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%s %q is not accepted, want KEY=VALUE, as lightShare=80%%", flag, pair)
		}
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		if _, number := value.(float64); number {
			value = text
		}
		out[key] = value
	}
	return out, nil
}

func newInstall(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install podweir on this node, once",
		Long: "Install podweir-cni and podweir's entry in the chain of the primary CNI. It does not follow that CNI\n" +
			"afterwards: the agent does. Pods that start from now on are shaped.\n\n" +
			"Defaults of an earlier install stay in force: --default KEY=VALUE changes one of them, --default KEY= removes\n" +
			"one. The steps of a failed install stay; the next one goes on.",
		Example: "  podweir install --dry-run\n  podweir install --default lightShare=80% --default policy=elephants\n" +
			"  podweir install --default defaultRate=100M --default maxRate=1G",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := newManager(o, cmd)
			if err != nil {
				return err
			}
			act := m.Install
			if o.v.GetBool("dry-run") {
				act = m.Plan
			}
			steps, err := act(cmd.Context())
			d := m.Decision()
			d.Warning = strings.Join(slices.DeleteFunc([]string{d.Warning, noBPFFS(o.v.GetString("root"), o.v.GetString("pins"))},
				func(s string) bool { return s == "" }), "; ")
			if printErr := printInstall(o, cmd.OutOrStdout(), d, steps); printErr != nil {
				return printErr
			}
			return err
		},
	}
	deliveryFlags(cmd.Flags())
	cmd.Flags().Bool("dry-run", false, "show what would be done and change nothing")
	return cmd
}

// noBPFFS says that the node has no BPF file system where podweir pins, "" if it has one.
// It is no error: it may be mounted later, and until then pods start without a limit.
func noBPFFS(root, pins string) string {
	dir := filepath.Dir(pins)
	var st unix.Statfs_t
	err := unix.Statfs(filepath.Join(root, dir), &st)
	switch bpffs := err == nil && uint32(st.Type) == unix.BPF_FS_MAGIC; { //nolint:gosec // its bits are those of the constant
	case bpffs && st.Flags&unix.ST_RDONLY == 0:
		return ""
	case bpffs:
		return fmt.Sprintf("the BPF file system at %[1]s is mounted read-only: no pod is limited until it can be written: mount -o remount,rw %[1]s", dir)
	}
	return fmt.Sprintf("the node has no BPF file system at %s: no pod is limited until it is mounted: mount -t bpf bpf %s", dir, dir)
}

// installOutput is what install prints as JSON.
type installOutput struct {
	Decision delivery.Decision `json:"decision"`
	Steps    []delivery.Step   `json:"steps"`
	DryRun   bool              `json:"dryRun"`
}

func printInstall(o *options, w io.Writer, d delivery.Decision, steps []delivery.Step) error {
	dry := o.v.GetBool("dry-run")
	if steps == nil {
		steps = []delivery.Step{}
	}
	if o.machine() {
		return o.print(w, installOutput{d, steps, dry})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", key, value)
		}
	}
	if d.Delivery != "" {
		line("delivery", string(d.Delivery)+": "+d.Why)
	}
	line("profile", d.Profile)
	line("runtime", d.Runtime)
	line("conflists", d.ConfDir)
	line("plugins", d.BinDir)
	line("entry", d.Entry)
	for _, key := range slices.Sorted(maps.Keys(d.Defaults)) {
		line("default", fmt.Sprintf("%s=%v", key, d.Defaults[key]))
	}
	for _, note := range d.Notes {
		line("note", note)
	}
	line("warning", d.Warning)
	for _, do := range d.Do {
		line("do", do)
	}
	for _, instead := range d.Instead {
		line("or else", instead)
	}
	done := "done"
	if dry {
		done = "to do"
	}
	for i := range steps {
		line(done, steps[i].String())
	}
	if len(steps) == 0 && d.Problem == "" {
		line(done, "nothing")
	}
	return t.Flush()
}

func newUninstall(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove podweir from this node: from the chain and from every pod",
		Long: "Remove podweir from the chain of the primary CNI and the limits from every pod, with pins, qdiscs and devices.\n" +
			"What podweir install replaced does not come back. If an agent runs, end it first: it would install podweir\n" +
			"again.",
		Example: "  podweir uninstall --dry-run\n  podweir uninstall --root /host",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := newManager(o, cmd)
			if err != nil {
				return err
			}
			if o.v.GetBool("dry-run") {
				return planUninstall(cmd.Context(), o, m, cmd.OutOrStdout())
			}
			// What is to be done only says what was: an error in it is Remove's to report.
			steps, _ := m.PlanRemove(cmd.Context())
			// First the chain, so that no pod gets a limit that nobody takes off.
			err = m.Remove(cmd.Context())
			if errors.Is(err, delivery.ErrRunning) || errors.Is(err, delivery.ErrCalled) {
				return err
			}
			done, detachErr := detachAll(cmd.Context(), o)
			done.Steps = append(slices.DeleteFunc(steps, undone), done.Steps...)
			return errors.Join(done.print(o, cmd.OutOrStdout(), "done  "), err, unlessMounted(o.paths(), detachErr))
		},
	}
	cniFlags(cmd.Flags())
	cmd.Flags().Bool("dry-run", false, "show what would be done and change nothing")
	return cmd
}

// undone says that a step of [delivery.Manager.PlanRemove] was not taken: the file is there.
func undone(s delivery.Step) bool {
	_, err := os.Lstat(s.Path)
	return !errors.Is(err, fs.ErrNotExist)
}

// uninstalled is what takes podweir off the node, to be done or done.
type uninstalled struct {
	Steps  []delivery.Step `json:"steps"`
	Detach []attach.ID     `json:"detach"`
}

// remove adds the removal of what is at a path, or on an interface.
func (u *uninstalled) remove(path, why string) {
	u.Steps = append(u.Steps, delivery.Step{Do: "remove", Path: path, Why: why})
}

// lost adds the removal of limits that no record tells of.
func (u *uninstalled) lost(lost []engine.Lost) {
	for i := range lost {
		u.remove(strings.Join(lost[i].What, ", ")+" on "+lost[i].Name(), "podweir has no record of it")
	}
}

func (u *uninstalled) print(o *options, w io.Writer, verb string) error {
	if o.machine() {
		u.Steps, u.Detach = append([]delivery.Step{}, u.Steps...), append([]attach.ID{}, u.Detach...)
		return o.print(w, u)
	}
	for _, id := range u.Detach {
		fmt.Fprintf(w, "%s detach %v\n", verb, id)
	}
	for i := range u.Steps {
		fmt.Fprintf(w, "%s %s\n", verb, u.Steps[i].String())
	}
	if len(u.Steps)+len(u.Detach) == 0 {
		fmt.Fprintln(w, verb+" nothing")
	}
	return nil
}

// detachAll takes the limits off every pod and removes what podweir keeps on this
// node besides: pins and records of failures. It goes on after an error, and returns what it did.
func detachAll(ctx context.Context, o *options) (done *uninstalled, err error) {
	paths, done := o.paths(), &uninstalled{}
	node, err := engine.Open(paths)
	if errors.Is(err, engine.ErrNoState) {
		return done, done.removeDir(paths.Run)
	}
	if err != nil {
		return done, err
	}
	defer node.Close()
	ids, all := node.List()
	for _, id := range ids {
		if err := node.Remove(ctx, id); err != nil {
			all = errors.Join(all, fmt.Errorf("detach %v: %w", id, err))
			continue
		}
		done.Detach = append(done.Detach, id)
	}
	lost, lostErr := node.RemoveLost(ctx)
	done.lost(lost)
	all = errors.Join(all, lostErr)
	if all != nil {
		// The pins that are left tell what is left.
		return done, all
	}
	return done, errors.Join(done.removeDir(paths.Pins), done.removeDir(paths.Run))
}

// whyRemoved is the reason of the steps of an uninstallation.
const whyRemoved = "podweir is removed"

// removeDir removes a directory of podweir's own with all that is in it. First what is
// in it: in a container the directory itself is a mount, or lies in a root that is
// read-only.
func (u *uninstalled) removeDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err = errors.Join(err, os.Remove(dir)); err != nil {
		return fmt.Errorf("remove in %s: %w", dir, err)
	}
	u.remove(dir, whyRemoved)
	return nil
}

func planUninstall(ctx context.Context, o *options, m *delivery.Manager, w io.Writer) error {
	steps, err := m.PlanRemove(ctx)
	if err != nil {
		return err
	}
	plan := uninstalled{Steps: steps}
	node, err := o.open()
	switch {
	case errors.Is(err, engine.ErrNoState):
	case err != nil:
		return err
	default:
		defer node.Close()
		if plan.Detach, err = node.List(); err != nil {
			return err
		}
		lost, err := node.Lost()
		if err != nil {
			return err
		}
		plan.lost(lost)
	}
	for _, dir := range []string{o.paths().Pins, o.paths().Run} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			plan.remove(dir, whyRemoved)
		}
	}
	return plan.print(o, w, "to do ")
}
