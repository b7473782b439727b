// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	daemon "github.com/podweir/podweir/plugin/agent"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/agent/nri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/agent/uninstall"
	"github.com/podweir/podweir/plugin/version"
)

// defaultDoctorInterval is how often the doctor looks: it takes some 0.1 s of a
// processor, and what it finds changes with a configuration or an upgrade.
const defaultDoctorInterval = 5 * time.Minute

func newAgent(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Keeps podweir working on this node: runs until SIGTERM",
		Long: "Installs podweir on the node and follows the primary CNI, keeps every pod shaped as its annotations ask\n" +
			"for, and answers Prometheus. It is never in the way of a packet: what is shaped stays shaped without it. It\n" +
			"ends with SIGTERM and leaves everything as it is, unless its DaemonSet was deleted: then it leaves nothing.",
		Example: "  podweir agent --node-name $(hostname) --kubeconfig /etc/kubernetes/admin.conf\n" +
			"  PODWEIR_ADDRESS=127.0.0.1:9479 podweir agent --config /etc/podweir/agent.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAgent(cmd, o) },
	}
	agentFlags(cmd.Flags())
	return cmd
}

func agentFlags(f *pflag.FlagSet) {
	deliveryFlags(f)
	f.String("config", "", "YAML file with values for these flags, by their names")
	f.String("delivery", string(delivery.Auto), "how podweir gets into the set-up of pods: auto, chain, drop-in, handed or nri")
	f.String("binary", "", "the podweir-cni to install; the one beside this program if empty")
	f.StringArray("default", nil, "KEY=VALUE of the plugin's configuration for all pods of the node; may be repeated")
	f.String("node-name", "", "name of this node in Kubernetes; required")
	f.String("kubeconfig", "", "kubeconfig file; that of the pod's service account if empty")
	f.String("cri-socket", "", "socket of the container runtime; looked for below the root if empty")
	f.String("nri-socket", nri.DefaultSocket, "socket for the delivery nri")
	f.String("daemonset", "", "namespace/name of the DaemonSet that the agent belongs to, whose deletion is an uninstall; none if empty")
	f.String("pod", "", "namespace/name/UID of the agent's own pod, for Events about the node; none if empty")
	f.String("address", serve.DefaultAddress, fmt.Sprintf("address to serve HTTP on, its port at most %d", serve.MaxPort))
	f.Bool("pprof", false, "serve profiles on /debug/pprof/")
	f.Duration("pass", reconcile.DefaultPass, "time between two looks at all pods; changes are noticed when they come")
	f.Duration("doctor-interval", defaultDoctorInterval, "time between two runs of the doctor, 0 for none")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "json", "json or text")
}

// The least that the intervals may be: more often than that is only load.
const (
	minPass           = time.Second
	minDoctorInterval = 10 * time.Second
)

// memoryLimit is what the garbage collector aims at. Beside 250 pods the agent
// holds up to 14 MiB with it (perfrig's memory-250, 2026-11-22); with 16 MiB the
// collector took as much of the processor as all the rest, before a scrape came
// to need less (a trial).
// gcPercent gives a little processor time for half of the memory. Both only where
// the operator says nothing by GOMEMLIMIT and GOGC.
const (
	memoryLimit = 20 << 20
	gcPercent   = 40
)

func runAgent(cmd *cobra.Command, o *options) error {
	if err := readAgentConfig(o.v.GetString("config"), cmd.Flags()); err != nil {
		return err
	}
	if !o.v.GetBool("pprof") {
		// Nobody can ask for the profile that the runtime would keep.
		runtime.MemProfileRate = 0
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	log, err := agentLog(cmd.ErrOrStderr(), o.v.GetString("log-format"), o.v.GetString("log-level"))
	if err != nil {
		return err
	}
	log.Info("podweir agent", "version", version.String(), "node", o.v.GetString("node-name"))
	a, err := newParts(cmd, o, log)
	if err != nil {
		log.Error("the agent cannot begin; pods stay as they are", "error", err)
		return err
	}
	defer func() { _ = a.runtime.close() }()
	config := daemon.Config{Parts: a.parts, Take: a.waiting.take, Remove: a.remove, Log: log}
	if a.watcher != nil {
		config.Ask = a.watcher.Ask
	}
	if err := daemon.Run(cmd.Context(), config); err != nil {
		log.Error("the agent ends; pods stay as they are", "error", err)
		return err
	}
	return nil
}

// readAgentConfig gives the flags that neither the command line nor the
// environment has set the values of a file. It knows every key of the file or
// fails.
func readAgentConfig(path string, f *pflag.FlagSet) error {
	if path == "" {
		return nil
	}
	v := viper.New()
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	var all error
	for _, key := range v.AllKeys() {
		flag := f.Lookup(key)
		if flag == nil || key == "config" || key == "help" {
			all = errors.Join(all, fmt.Errorf("--config %s: %q is no setting of the agent, want one of %s", path, key, strings.Join(settings(f), ", ")))
			continue
		}
		if flag.Changed {
			continue
		}
		if err := setFlag(f, flag, v); err != nil {
			all = errors.Join(all, fmt.Errorf("--config %s: %s: %w", path, key, err))
		}
	}
	return all
}

func setFlag(f *pflag.FlagSet, flag *pflag.Flag, v *viper.Viper) error {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		flag.Changed = true
		return list.Replace(v.GetStringSlice(flag.Name))
	}
	return f.Set(flag.Name, v.GetString(flag.Name))
}

// settings are the keys that the file may have.
func settings(f *pflag.FlagSet) []string {
	var names []string
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "config" && flag.Name != "help" {
			names = append(names, flag.Name)
		}
	})
	return names
}

func agentLog(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return nil, fmt.Errorf("--log-level %q is not accepted, want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	default:
		return nil, fmt.Errorf("--log-format %q is not accepted, want json or text", format)
	}
}

// checkAgent returns everything that is wrong with the settings, by flag.
func checkAgent(o *options) error {
	var all error
	fail := func(format string, args ...any) { all = errors.Join(all, fmt.Errorf(format, args...)) }
	if o.v.GetString("node-name") == "" {
		fail(`--node-name "" is not accepted, want the name of this node in Kubernetes (spec.nodeName)`)
	}
	if _, err := serve.ParseAddress(o.v.GetString("address")); err != nil {
		fail("--address: %w", err)
	}
	if d := o.v.GetDuration("pass"); d < minPass {
		fail("--pass %v is not accepted, want %v or more", d, minPass)
	}
	if d := o.v.GetDuration("doctor-interval"); d != 0 && d < minDoctorInterval {
		fail("--doctor-interval %v is not accepted, want 0 or %v or more", d, minDoctorInterval)
	}
	if name := o.v.GetString("daemonset"); name != "" {
		if _, _, err := uninstall.ParseName(name); err != nil {
			fail("--daemonset: %w", err)
		}
	}
	if pod := o.v.GetString("pod"); pod != "" && len(strings.Split(pod, "/")) != 3 {
		fail("--pod %q is not accepted, want namespace/name/UID", pod)
	}
	return all
}
