// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/cilium/daemon/cmd/cni"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const confDir = "etc/cni/net.d"

// host is a node's root with a directory of conflists.
type host struct{ root string }

func newHost(t *testing.T, files map[string]string) *host {
	t.Helper()
	h := &host{t.TempDir()}
	h.write(t, "keep", "")
	must.OK(t, os.Remove(h.path("keep")))
	for name, content := range files {
		h.write(t, name, content)
	}
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.root, confDir, name) }

func (h *host) write(t *testing.T, name, content string) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(h.path(name)), 0o755))
	must.OK(t, os.WriteFile(h.path(name), []byte(content), 0o644))
}

func (h *host) has(name string) bool {
	_, err := os.Lstat(h.path(name))
	return !errors.Is(err, fs.ErrNotExist)
}

func (h *host) read(t *testing.T, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(h.path(name)))(t)
	return string(b)
}

// runManager starts Cilium's real manager of the directory with settings, and
// stops it with the test.
func (h *host) runManager(t *testing.T, settings map[string]any) {
	t.Helper()
	manager := hive.New(cni.Cell,
		cell.Provide(func() *option.DaemonConfig { return &option.DaemonConfig{} }),
		cell.Invoke(func(cni.CNIConfigManager) {}))
	v := manager.Viper()
	v.Set("write-cni-conf-when-ready", h.path(own))
	v.Set("cni-log-file", "/var/run/cilium/cilium-cni.log")
	v.Set("cni-chaining-mode", "none")
	for key, value := range settings {
		v.Set(key, value)
	}
	log := slog.New(slog.DiscardHandler)
	must.OK(t, manager.Start(log, t.Context()))
	t.Cleanup(func() { must.OK(t, manager.Stop(log, context.Background())) })
	eventually(t, "Cilium writes "+own, func() bool { return h.has(own) })
}

const own = "05-cilium.conflist"

// eventually polls; the manager works within milliseconds.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("in 10 s not: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// settle waits for as long as the manager took to answer a change: a file that
// it is known to rename, written last.
func (h *host) settle(t *testing.T) {
	t.Helper()
	h.write(t, "99-canary.conflist", "{}")
	eventually(t, "Cilium renames the canary", func() bool { return !h.has("99-canary.conflist") })
}

func (h *host) node(t *testing.T) *detect.Node {
	t.Helper()
	return detect.Read(t.Context(), detect.HostRoot(h.root), detect.Options{Runtime: "containerd://2.1.3"})
}

// TestNetworkNames: the name that decides where the drop-in belongs.
func TestNetworkNames(t *testing.T) {
	for mode, want := range map[string]string{"none": "cilium", "portmap": "portmap", "flannel": "flannel"} {
		h := newHost(t, nil)
		h.runManager(t, map[string]any{"cni-exclusive": false, "cni-chaining-mode": mode})
		must.Be(t, "network in chaining mode "+mode, want, h.node(t).Conf.Original().Network.Name)
	}
}
