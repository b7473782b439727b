// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	confDir  = "etc/cni/net.d"
	binDir   = "opt/cni/bin"
	original = "10-x.conflist"
	ours     = "00-podweir-10-x.conflist"
	// deadline is for what happens in milliseconds, on a machine that has much
	// else to do.
	deadline = 20 * time.Second
)

// host is the root of a node with a primary CNI.
type host struct {
	root, binary string
	// bubble says that the clock is that of a bubble.
	bubble bool
	// tick is how often the agent looks although nothing changed, 0 for as often as it does.
	tick time.Duration
}

// network is a list with a number in it, so that one writing can be told from
// another.
func network(name string, number int, types ...string) string {
	plugins := make([]string, len(types))
	for i, p := range types {
		plugins[i] = fmt.Sprintf(`{"type":%q,"number":%d}`, p, number)
	}
	return fmt.Sprintf("{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": %q,\n  \"plugins\": [\n    %s\n  ]\n}\n", name, strings.Join(plugins, ",\n    "))
}

// newHost makes a node with ptp and a chain of it, and files besides.
func newHost(t *testing.T, files map[string]string) *host {
	t.Helper()
	h := &host{root: t.TempDir(), binary: filepath.Join(t.TempDir(), conflist.Type)}
	for _, dir := range []string{confDir, binDir, "var/lib", "proc/1/net"} {
		must.OK(t, os.MkdirAll(h.path(dir), 0o755))
	}
	must.OK(t, os.WriteFile(h.binary, []byte("plugin, first release"), 0o755))
	h.write(t, binDir+"/ptp", "the primary plugin")
	for name, content := range files {
		h.write(t, name, content)
	}
	return h
}

// bubble runs a test in a bubble of testing/synctest, whose clock stands still while a goroutine
// waits for the kernel.
func bubble(files map[string]string, f func(t *testing.T, h *host)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, files)
			h.bubble = true
			f(t, h)
		})
	}
}

// soon is the tick where a test would wait for it.
const soon = 50 * time.Millisecond

func (h *host) path(name string) string { return filepath.Join(h.root, name) }

func (h *host) write(t *testing.T, name, content string) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(h.path(name)), 0o755))
	must.OK(t, os.WriteFile(h.path(name), []byte(content), 0o644))
}

func (h *host) read(name string) string {
	raw, err := os.ReadFile(h.path(name))
	if err != nil {
		return ""
	}
	return string(raw)
}

func (h *host) remove(t *testing.T, name string) {
	t.Helper()
	must.OK(t, os.RemoveAll(h.path(name)))
}

// has fails the test unless files are there.
func (h *host) has(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if h.read(name) == "" {
			t.Errorf("%s is gone", name)
		}
	}
}

// manager makes one of this node; with changes the configuration.
func (h *host) manager(t *testing.T, with func(*delivery.Config)) *delivery.Manager {
	t.Helper()
	c := delivery.Config{Root: h.root, Binary: h.binary, Log: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	if with != nil {
		with(&c)
	}
	m := must.Get(delivery.New(c))(t)
	if h.tick > 0 {
		m.Look(h.tick)
	}
	return m
}

func (h *host) install(t *testing.T, with func(*delivery.Config)) *delivery.Manager {
	t.Helper()
	m := h.manager(t, with)
	must.OK(t, must.Err(m.Install(t.Context())))
	return m
}

// removed takes podweir off the node, with its binary.
func (h *host) removed(t *testing.T, m *delivery.Manager) {
	t.Helper()
	must.OK(t, m.Remove(t.Context()))
	must.Be(t, "the binary after the removal", "", h.read(plugin))
}

// works fails the test unless podweir is in force by a delivery, and nothing is wrong.
func works(t *testing.T, m *delivery.Manager, want profiles.Delivery) {
	t.Helper()
	d := m.Decision()
	must.Be(t, "delivery", want, d.Delivery)
	must.Be(t, "problem", "", d.Problem)
	must.Be(t, "in force", true, d.InForce)
}

// run runs an agent's part until the test ends or stop is called.
func (h *host) run(t *testing.T, with func(*delivery.Config)) (m *delivery.Manager, stop func()) {
	t.Helper()
	m = h.manager(t, with)
	return m, testutil.During(t, m.Run)
}

// testLog writes to the log of a test that has not ended.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

// chain lists the plugin types in force, nil without a network.
func (h *host) chain() []string { return chainIn(h.path(confDir)) }

func (h *host) shaped() bool { return slices.Contains(h.chain(), conflist.Type) }

func (h *host) eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	testutil.Eventually(t, deadline, what, cond)
}

// tree describes everything below the root: names, kinds, modes, contents, and
// when files were last written.
func (h *host) tree(t *testing.T) map[string]string {
	t.Helper()
	return must.Tree(t, h.root)
}
