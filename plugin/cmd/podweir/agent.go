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

	daemon "github.com/podweir/podweir/plugin/agent"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/nri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/agent/uninstall"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/version"
)

// defaultDoctorInterval is how often the doctor looks: it takes some 0.1 s of a
// processor, and what it finds changes with a configuration or an upgrade.
const defaultDoctorInterval = 5 * time.Minute

// defaultNamespaceInterval is how old the rates on a Namespace may be: at 5,000 nodes
// with pods of 26 namespaces each the API server answers 1,100 requests a second from
// its cache (docs/reference/agent.md).
const defaultNamespaceInterval = 2 * time.Minute

func newAgent(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run on this node until SIGTERM: install podweir and keep pods shaped",
		Long: "Install podweir on the node, follow the primary CNI, keep every pod shaped as its annotations say, and serve\n" +
			"metrics for Prometheus. No packet passes through the agent: pods stay shaped without it. SIGTERM ends it and\n" +
			"leaves everything in place, unless its DaemonSet was deleted: then it removes podweir from the node.",
		Example: "  KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=6443 podweir agent --node-name $(hostname) --credentials /etc/podweir\n" +
			"  PODWEIR_ADDRESS=127.0.0.1:9479 podweir agent --config /etc/podweir/agent.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAgent(cmd, o) },
	}
	agentFlags(cmd.Flags())
	return cmd
}

func agentFlags(f *pflag.FlagSet) {
	deliveryFlags(f)
	f.String("node-name", "", "name of this node in Kubernetes; required")
	f.String("credentials", kube.ServiceAccountDir, "directory with token and ca.crt for the API server that KUBERNETES_SERVICE_HOST and _PORT name")
	f.String("nri-socket", nri.DefaultSocket, "socket for the delivery nri")
	f.String("daemonset", "", "namespace/name of the DaemonSet that the agent belongs to, whose deletion is an uninstall; none if empty")
	f.String("pod", "", "namespace/name/UID of the agent's own pod, for Events about the node; none if empty")
	f.String("address", serve.DefaultAddress, fmt.Sprintf("address to serve metrics on, its port at most %d", serve.MaxPort))
	f.String("health-address", serve.DefaultHealthAddress, "loopback address to serve /healthz and /readyz on")
	f.Bool("tls", false, "serve metrics over TLS, and only to those whom the API server allows to get /metrics")
	f.String("tls-dir", "", "directory with tls.crt and tls.key for --tls; the agent makes a certificate if empty")
	f.String("cluster-address", "", "address to serve the state of the node on over TLS, for kubectl podweir; none if empty")
	f.String("cluster-reader", "", "namespace/name of the ServiceAccount whose tokens may read the state of the node")
	f.Bool("pprof", false, "serve profiles on /debug/pprof/ of the health address")
	f.Duration("pass", reconcile.DefaultPass, "time between two looks at all pods; changes are noticed when they come")
	f.Duration("doctor-interval", defaultDoctorInterval, "time between two runs of the doctor, 0 for none")
	f.Duration("namespace-interval", defaultNamespaceInterval, "time after which the rates on a pod's Namespace are read again, 0 to read none")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "json", "json or text")
}

// The least that the intervals may be: more often than that is only load.
const (
	minPass     = time.Second
	minInterval = 10 * time.Second
)

// memoryLimit is what the garbage collector aims at. Beside 250 pods the agent
// holds up to 15.6 MiB with it (perfrig's memory-250, docs/results); with 16 MiB the
// collector took as much of the processor as all the rest, before a scrape came
// to need less (a trial).
// gcPercent gives a little processor time for half of the memory. Both only where
// the operator says nothing by GOMEMLIMIT and GOGC.
const (
	memoryLimit = 20 << 20
	gcPercent   = 40
)

func runAgent(cmd *cobra.Command, o *options) error {
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
	log, err := agentLog(cmd.ErrOrStderr(), o.v.GetString("log-format"), o.v.GetString("log-level"), o.runByReaders())
	if err != nil {
		return err
	}
	log.Info("agent started", "version", version.String(), "node", o.v.GetString("node-name"))
	a, err := newParts(cmd, o, log)
	if err != nil {
		log.Error("agent failed to start: pods stay as they are", "error", err)
		return err
	}
	defer func() { _ = a.runtime.Close() }()
	config := daemon.Config{Parts: a.parts, Take: a.waiting.take, Remove: a.remove, Log: log}
	if a.watcher != nil {
		config.Ask = a.watcher.Ask
	}
	if err := daemon.Run(cmd.Context(), config); err != nil {
		log.Error("agent ended with an error: pods stay as they are", "error", err)
		return err
	}
	return nil
}

// agentLog is the agent's log. Run is how podweir's program is run where it is read.
func agentLog(w io.Writer, format, level, run string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return nil, fmt.Errorf("--log-level %q is not accepted, want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case string:
			a.Value = slog.StringValue(terms.Runnable(v, run))
		case error:
			a.Value = slog.StringValue(terms.Runnable(v.Error(), run))
		}
		return a
	}}
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
	if err := serve.CheckAddress(o.v.GetString("address")); err != nil {
		fail("--address: %w", err)
	}
	if err := serve.CheckLoopback(o.v.GetString("health-address")); err != nil {
		fail("--health-address: %w", err)
	}
	checkCluster(o, fail)
	if dir := o.v.GetString("tls-dir"); dir != "" && !o.v.GetBool("tls") {
		fail("--tls-dir %q is not accepted without --tls", dir)
	}
	if d := o.v.GetDuration("pass"); d < minPass {
		fail("--pass %v is not accepted, want %v or more", d, minPass)
	}
	for _, flag := range []string{"doctor-interval", "namespace-interval"} {
		if d := o.v.GetDuration(flag); d != 0 && d < minInterval {
			fail("--%s %v is not accepted, want 0 or %v or more", flag, d, minInterval)
		}
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
