// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What "make runsc" builds: gVisor's own program, and what runs in its sandbox.
const (
	runsc       = "../../bin/gvisor/runsc"
	sandboxLoad = "../../bin/gvisor/load"
)

// The cap of gVisor's pods, in bits per second, and what is offered to it by datagrams.
const (
	sandboxRate    = 10_000_000
	offeredRate    = 60_000_000
	sandboxPayload = 1000
	// sandboxCredit is what may come at once after idle where the limit is policed, in bytes: 250 ms of
	// the cap, and its horizon of 50 ms.
	sandboxCredit = sandboxRate / 8 * 300 / 1000
)

// carried is what arrived at a receiver, in bytes of payload.
type carried struct {
	bytes  int64
	within time.Duration
}

func (c carried) rate() float64 { return float64(8*c.bytes) / c.within.Seconds() }

// A pod of gVisor, whose runtime is the real one, started after ADD as a container runtime
// does. Its limits hold where ingress is at the host side, in a queue or policed, and
// out of the pod everywhere. In the pod an ingress limit holds nothing: gVisor reads the
// device ahead of it. Without podweir nothing is limited.
func TestPrivilegedGVisor(t *testing.T) {
	mark.Nightly(t, "a minute, with gVisor's own runsc")
	mark.Timed(t, "rates")
	for _, program := range []string{runsc, sandboxLoad} {
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
				if tc.mode.keys["hostHook"] == "tcx" && !datapath.HaveTCX() {
					testutil.SkipFeature(t, "tcx")
				}
				p.must(t, "ADD", tc.mode)
			}
			p.sandbox(t)
			for name, d := range map[string]struct {
				got  carried
				held bool
			}{
				"TCP into the pod": {p.offers(t, "tcp"), tc.in}, "UDP into the pod": {p.offers(t, "udp"), tc.in},
				"TCP out of the pod": {p.asks(t, "tcp"), tc.out}, "UDP out of the pod": {p.asks(t, "udp"), tc.out},
			} {
				most := sandboxRate/8*d.got.within.Seconds() + sandboxCredit
				t.Logf("%s: %.1f Mbit/s", name, d.got.rate()/1e6)
				switch {
				case d.held && (float64(d.got.bytes) > most || d.got.rate() < sandboxRate/4):
					t.Errorf("%s: %d bytes in %v, %.1f Mbit/s, want at most %.0f bytes and at least a quarter of the cap", name, d.got.bytes, d.got.within, d.got.rate()/1e6, most)
				case !d.held && float64(d.got.bytes) < 1.3*most:
					t.Errorf("%s: %d bytes in %v, %.1f Mbit/s, want far more than the cap lets through", name, d.got.bytes, d.got.within, d.got.rate()/1e6)
				}
			}
			if tc.mode != nil {
				p.must(t, "CHECK", tc.mode)
				p.must(t, "DEL", tc.mode)
			}
		})
	}
}

// sandbox runs the load in the pod's namespace, until the test ends.
func (p *pod) sandbox(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	bundle := filepath.Join(dir, "bundle")
	bin := filepath.Join(bundle, "rootfs", "bin")
	load, err := os.ReadFile(sandboxLoad)
	if err == nil {
		err = errors.Join(os.MkdirAll(bin, 0o755), os.WriteFile(filepath.Join(bin, "load"), load, 0o755))
	}
	must.OK(t, err)
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.0",
		"process":    map[string]any{"args": []string{"/bin/load"}, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0}},
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
	program, err := filepath.Abs(runsc)
	must.OK(t, err)
	id := filepath.Base(p.ns.Path())
	flags := []string{"--root", filepath.Join(dir, "state"), "--platform=systrap", "--network=sandbox", "--ignore-cgroups"}
	// The sandbox outlives the test's context, so that it can be deleted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	cmd := exec.CommandContext(ctx, program, append(flags, "run", "--bundle", bundle, id)...)
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
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
	ready := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		ready <- fmt.Sprintf("%q, %v", line, err)
	}()
	select {
	case line := <-ready:
		if line != `"ready\n", <nil>` {
			t.Fatalf("runsc prints %s", line)
		}
	case <-time.After(time.Minute):
		t.Fatal("the sandbox does not start within a minute")
	}
}

// loadTime is how long each load lasts, as the one in the sandbox.
const loadTime = 2 * time.Second

// dial connects from the client.
func (p *pod) dial(t *testing.T, network, port string) net.Conn {
	t.Helper()
	var c net.Conn
	must.OK(t, p.rig.client.Do(func() (err error) {
		c, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), network, net.JoinHostPort(p.addr, port))
		return err
	}))
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// answered reads the number that the sandbox answers.
func answered(t *testing.T, c net.Conn) int64 {
	t.Helper()
	text, err := io.ReadAll(c)
	must.OK(t, err)
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	must.OK(t, err)
	return n
}

// offers sends into the pod, and returns what arrived there.
func (p *pod) offers(t *testing.T, network string) carried {
	t.Helper()
	start := time.Now()
	if network == "udp" {
		answered(t, p.dial(t, "tcp", "7005")) // of before
		c := p.dial(t, "udp", "7003")
		const tick = 2 * time.Millisecond
		pace := time.NewTicker(tick)
		defer pace.Stop()
		sent := 0
		for start = time.Now(); time.Since(start) < loadTime; <-pace.C {
			// A machine that is busy makes up for it.
			for due := int(offeredRate * time.Since(start).Seconds() / 8 / sandboxPayload); sent < due; sent++ {
				_, _ = c.Write(make([]byte, sandboxPayload)) // a full queue refuses it
			}
		}
		return carried{answered(t, p.dial(t, "tcp", "7005")), time.Since(start)}
	}
	c := p.dial(t, "tcp", "7001")
	_ = c.SetWriteDeadline(time.Now().Add(loadTime))
	block := make([]byte, 64<<10)
	for {
		if _, err := c.Write(block); err != nil {
			break
		}
	}
	must.OK(t, c.(*net.TCPConn).CloseWrite())
	return carried{answered(t, c), time.Since(start)}
}

// asks has the pod send, and returns what arrived at the client.
func (p *pod) asks(t *testing.T, network string) carried {
	t.Helper()
	start := time.Now()
	if network == "tcp" {
		n, err := io.Copy(io.Discard, p.dial(t, "tcp", "7002"))
		must.OK(t, err)
		return carried{n, time.Since(start)}
	}
	c := p.dial(t, "udp", "7004")
	if _, err := fmt.Fprint(c, "send"); err != nil {
		t.Fatal(err)
	}
	var got carried
	buffer := make([]byte, 2*sandboxPayload)
	for {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(buffer)
		if err != nil {
			return got
		}
		got.bytes, got.within = got.bytes+int64(n), time.Since(start)
	}
}
