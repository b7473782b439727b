// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/version"
)

// doctorTimeout bounds the whole: a node in trouble must not hold its doctor.
const doctorTimeout = 10 * time.Second

// The shortest watch still sees traffic of some packets a second.
const minWatch, maxWatch = time.Second, time.Minute

// exitError is an error with an exit status of its own.
type exitError struct {
	status int
	text   string
}

func (e *exitError) Error() string { return e.text }

func newDoctor(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Checks whether podweir can work on this node and gets on with its CNI",
		Long: "Checks whether podweir can work on this node, is wired in, and gets on with everybody else there. It\n" +
			"changes nothing. With --probe it also watches for some seconds and tries what a look does not tell; each such\n" +
			"check names what it touches. Exit status 1 if a check failed, 2 if one could not be answered.",
		Example: "  podweir doctor --short\n  podweir doctor --probe\n  podweir doctor --root /host -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, o) },
	}
	f := cmd.Flags()
	f.String("root", "/", "root directory of the node")
	f.String("conf-dir", "", "directory of conflists below the root; looked for if empty")
	f.String("bin-dir", "", "directory of plugins below the root; looked for if empty")
	f.String("runtime", "", "container runtime and version, as containerd://2.1.3; looked for if empty")
	f.String("delivery", "", "how podweir gets into the set-up of pods, where it was asked for: a node does not show nri")
	f.Bool("short", false, "show only what is not in order")
	f.Bool("probe", false, "also watch, and try what a look does not tell")
	f.Duration("probe-time", 3*time.Second, "how long --probe watches, 1s to 1m")
	f.Bool("strict", false, "let a warning count as a failure")
	return cmd
}

// newCompat holds the doctor under the name of what it is about, too.
func newCompat(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "compat", Short: "Looks at what else is on this node", Args: cobra.NoArgs}
	cmd.AddCommand(newDoctor(o))
	return cmd
}

func runDoctor(cmd *cobra.Command, o *options) error {
	root := o.v.GetString("root")
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return &exitError{doctor.ExitUnknown, fmt.Sprintf("--root %q is not accepted, want the root directory of the node: %v", root, err)}
	}
	watch := time.Duration(0)
	if o.v.GetBool("probe") {
		watch = o.v.GetDuration("probe-time")
		if watch < minWatch || watch > maxWatch {
			return &exitError{doctor.ExitUnknown, fmt.Sprintf("--probe-time %v is not accepted, want %v to %v", watch, minWatch, maxWatch)}
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout+watch)
	defer cancel()
	kernel := &doctorKernel{options: o, root: root}
	host := detect.HostRoot(root)
	node := detect.Read(ctx, host, detect.Options{
		ConfDir: o.v.GetString("conf-dir"), BinDir: o.v.GetString("bin-dir"), Runtime: o.v.GetString("runtime"),
		ToldRuntime: delivery.ToldRuntime(root), Live: kernel,
	})
	opts := doctor.Options{Version: version.String(), Pins: o.paths().Pins, Kernel: kernel, Beside: beside(), Delivery: profiles.Delivery(o.v.GetString("delivery"))}
	if watch > 0 {
		opts.Prober, opts.Watch = &prober{kernel}, watch
	}
	rep := doctor.Run(doctor.Gather(ctx, host, node, opts))
	out := cmd.OutOrStdout()
	format := doctor.Format{Short: o.v.GetBool("short"), Color: isTerminal(out) && os.Getenv("NO_COLOR") == ""}
	write := rep.WriteTable
	if o.json() {
		write = rep.WriteJSON
	}
	if err := write(out, format); err != nil {
		return err
	}
	if status := rep.Exit(o.v.GetBool("strict")); status != doctor.ExitOK {
		return &exitError{status, "doctor: " + rep.Summary()}
	}
	return nil
}

// beside is the digest of the plugin's binary in the directory of this program,
// "" if there is none.
func beside() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(filepath.Join(filepath.Dir(self), conflist.Type))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	sum, err := doctor.Digest(f)
	if err != nil {
		return ""
	}
	return sum
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// runtimeTimeout bounds the question for the version.
const runtimeTimeout = time.Second

// Runtime asks the container runtime over its CRI socket.
func (k *doctorKernel) Runtime(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	client := &runtimeClient{root: k.root, socket: k.v.GetString("cri-socket")}
	defer func() { _ = client.close() }()
	c, err := client.open()
	if err != nil {
		return "", err
	}
	return c.Version(ctx)
}

// ciliumTimeout bounds one question to Cilium's agent.
const ciliumTimeout = 2 * time.Second

// maxAnswer bounds what is read of an answer, in bytes: /v1/config has some 20 kB.
const maxAnswer = 4 << 20

// CiliumAPI asks Cilium's agent over its socket.
func (k *doctorKernel) CiliumAPI(ctx context.Context, resource string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, ciliumTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(k.root, "run/cilium/cilium.sock"))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://cilium"+resource, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent answers %s", res.Status)
	}
	return body, nil
}
