// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What "make runsc" builds: gVisor's own program, and the one that pods of e2e/k8s run.
const (
	runsc = "../../bin/gvisor/runsc"
	work  = "../../bin/gvisor/work"
)

// The cap of gVisor's pods and what is offered to it, in bits per second.
const (
	sandboxRate = 10_000_000
	offeredRate = "60000000"
	// sandboxCredit is what may come at once after idle where the limit is policed, in bytes: 250 ms of
	// the cap, and its horizon of 50 ms.
	sandboxCredit = sandboxRate / 8 * 300 / 1000
)

// loadTime is how long what arrives is counted.
const loadTime = 2 * time.Second

// A pod of gVisor, whose runtime is the real one, started after ADD as a container runtime
// does. Its limits hold where ingress is at the host side, in a queue or policed, and
// out of the pod everywhere. In the pod an ingress limit holds nothing: gVisor reads the
// device ahead of it. Without podweir nothing is limited.
func TestPrivilegedGVisor(t *testing.T) {
	mark.Nightly(t, "a minute, with gVisor's own runsc")
	mark.Timed(t, "rates")
	for _, program := range []string{runsc, work} {
		if _, err := os.Stat(program); err != nil {
			testutil.SkipFeature(t, "runsc (make runsc)")
		}
	}
	limited := func(keys conf) *mode {
		all := conf{"egressRate": "10M", "ingressRate": "10M", "hostHook": "auto"}
		maps.Copy(all, keys)
		return &mode{keys: all}
	}
	for _, tc := range []struct {
		name string
		mode *mode
		// in and out say that the limit of the direction holds.
		in, out bool
	}{
		{"without podweir", nil, false, false},
		{"auto", limited(nil), true, true},
		{"policed at the host side", limited(conf{"hostHook": "tcx", "ingressMode": "tcx-hostside", "ingressQueue": "none"}), true, true},
		{"on an ifb", limited(conf{"ingressPlace": "ifb"}), false, true},
		{"policed in the pod", limited(conf{"ingressQueue": "none"}), false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			p := r.newPod(t, "veth1")
			if tc.mode != nil {
				if tc.mode.keys["hostHook"] == "tcx" && !testutil.HaveTCX() {
					testutil.SkipFeature(t, "tcx")
				}
				p.must(t, "ADD", tc.mode)
			}
			inSandbox := p.sandbox(t)
			// What the sandbox sends last goes on for a while.
			for _, d := range []struct {
				way, network, to string
				from, at         command
				held             bool
			}{
				{"up", "tcp", p.addr, r.atClient, inSandbox, tc.in},
				{"up-udp", "udp", p.addr, r.atClient, inSandbox, tc.in},
				{"down", "tcp", clientAddr, inSandbox, r.atClient, tc.out},
				{"down-udp", "udp", clientAddr, inSandbox, r.atClient, tc.out},
			} {
				got, most := arrives(t, d.network, d.to, d.from, d.at), sandboxRate/8*loadTime.Seconds()+sandboxCredit
				rate := got * 8 / loadTime.Seconds() / 1e6
				t.Logf("%s: %.1f Mbit/s", d.way, rate)
				switch {
				case d.held && (got > most || got < sandboxRate/8*loadTime.Seconds()/4):
					t.Errorf("%s: %.0f bytes, %.1f Mbit/s, want at most %.0f bytes and at least a quarter of the cap", d.way, got, rate, most)
				case !d.held && got < 1.3*most:
					t.Errorf("%s: %.0f bytes, %.1f Mbit/s, want far more than the cap lets through", d.way, got, rate)
				}
			}
			if tc.mode != nil {
				p.must(t, "CHECK", tc.mode)
				p.must(t, "DEL", tc.mode)
			}
		})
	}
}

// command runs the program of pods somewhere.
type command func(t *testing.T, args ...string) *exec.Cmd

// sandbox runs a server in the pod's namespace until the test ends, and returns what runs
// the same program beside it.
func (p *pod) sandbox(t *testing.T) (inSandbox command) {
	t.Helper()
	dir := t.TempDir()
	bundle := filepath.Join(dir, "bundle")
	bin := filepath.Join(bundle, "rootfs", "bin")
	server, err := os.ReadFile(work)
	if err == nil {
		err = errors.Join(os.MkdirAll(bin, 0o755), os.WriteFile(filepath.Join(bin, "work"), server, 0o755))
	}
	must.OK(t, err)
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.0",
		"process":    map[string]any{"args": []string{"/bin/work", "serve"}, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0}, "capabilities": map[string]any{}},
		"root":       map[string]any{"path": "rootfs", "readonly": true},
		"mounts":     []any{map[string]any{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux": map[string]any{"namespaces": []any{
			map[string]any{"type": "pid"},
			map[string]any{"type": "ipc"},
			map[string]any{"type": "uts"},
			map[string]any{"type": "mount"},
			map[string]any{"type": "network", "path": p.ns.Path()},
		}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600)
	}
	must.OK(t, err)
	program := must.Get(filepath.Abs(runsc))(t)
	id := filepath.Base(p.ns.Path())
	flags := []string{"--root", filepath.Join(dir, "state"), "--platform=systrap", "--network=sandbox", "--ignore-cgroups"}
	// The sandbox outlives the test's context, so that it can be deleted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	cmd := exec.CommandContext(ctx, program, append(flags, "run", "--bundle", bundle, id)...)
	cmd.Stdout = os.Stderr
	cmd.Stderr = os.Stderr
	// Processes of the sandbox have the pipes, too, and may end later.
	cmd.WaitDelay = 5 * time.Second
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		removing, done := context.WithTimeout(ctx, 20*time.Second)
		defer done()
		_ = exec.CommandContext(removing, program, append(flags, "delete", "--force", id)...).Run()
		cancel()
		_ = cmd.Wait()
	})
	inSandbox = func(t *testing.T, args ...string) *exec.Cmd {
		t.Helper()
		return exec.CommandContext(t.Context(), program, append(append(flags, "exec", id, "/bin/work"), args...)...)
	}
	testutil.Eventually(t, time.Minute, "the sandbox takes connections", func() bool {
		return p.rig.client.Do(func() error {
			c, err := net.DialTimeout("tcp", p.addr+":7000", time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		}) == nil
	})
	return inSandbox
}

// atClient runs the program at the client.
func (r *rig) atClient(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return r.client.Command(t, work, args...)
}

// arrives returns how many bytes of a load come to its receiver, which counts them itself.
func arrives(t *testing.T, network, to string, from, at command) float64 {
	t.Helper()
	load := from(t, "send", network, to, offeredRate)
	must.OK(t, load.Start())
	defer func() {
		_ = load.Process.Kill()
		_ = load.Wait()
	}()
	out, err := at(t, "take", network, loadTime.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", network, err, out)
	}
	return must.Get(strconv.ParseFloat(strings.TrimSpace(string(out)), 64))(t)
}
