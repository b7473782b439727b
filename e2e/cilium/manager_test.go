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
	"strings"
	"testing"
	"time"

	"github.com/cilium/cilium/daemon/cmd/cni"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/containernetworking/cni/libcni"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
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
	b, err := os.ReadFile(h.path(name))
	must.OK(t, err)
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
	t.Cleanup(func() {
		if err := manager.Stop(log, context.Background()); err != nil {
			t.Error(err)
		}
	})
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

// splice writes podweir's file for what is in force.
func (h *host) splice(t *testing.T) string {
	t.Helper()
	original := h.node(t).Conf.Original()
	if original == nil || original.Network == nil {
		t.Fatalf("nothing to chain to: %+v", original)
	}
	raw, err := conflist.Join(original.Network, []byte(conflist.DefaultEntry), nil, nil)
	must.OK(t, err)
	name, err := conflist.FileName(original.Name)
	must.OK(t, err)
	h.write(t, name, string(raw))
	return name
}

// chain is what the real libcni makes of a file.
func (h *host) chain(t *testing.T, name string) string {
	t.Helper()
	list, err := libcni.NetworkConfFromFile(h.path(name))
	must.OK(t, err)
	var types []string
	for _, p := range list.Plugins {
		types = append(types, p.Network.Type)
	}
	return strings.Join(types, " ")
}

// TestExclusive: a top-level file of podweir's is renamed, again and again; the
// drop-in survives and is in the chain; detect and Choose see both.
func TestExclusive(t *testing.T) {
	h := newHost(t, map[string]string{"10-other.conflist": `{"name":"other","plugins":[{"type":"ptp"}]}`})
	h.runManager(t, map[string]any{"cni-exclusive": true})
	eventually(t, "Cilium renames the other", func() bool { return h.has("10-other.conflist.cilium_bak") })
	for range 2 {
		name := h.splice(t)
		eventually(t, "Cilium renames podweir's file", func() bool { return !h.has(name) && h.has(name+conflist.BackupSuffix) })
	}
	node := h.node(t)
	if node.Exclusive != profiles.Yes || !strings.Contains(node.ExclusiveWhy, "podweir's file, renamed") {
		t.Errorf("exclusive %v because %q", node.Exclusive, node.ExclusiveWhy)
	}
	choice := conflist.Choose(conflist.Situation{
		Profile: node.Profile, Runtime: node.Runtime, Exclusive: node.Exclusive, Original: node.Conf.Original().Network,
	})
	if choice.Delivery != profiles.DropIn {
		t.Fatalf("Choose() = %+v, want drop-in", choice)
	}
	dropIn, err := conflist.DropIn([]byte(conflist.DefaultEntry))
	must.OK(t, err)
	file := filepath.Join(node.Conf.Original().Network.Name, conflist.DropInFile)
	h.write(t, file, string(dropIn))
	before := h.read(t, own)
	h.settle(t)
	if got := h.chain(t, own); got != "cilium-cni podweir-cni" {
		t.Errorf("chain %q, want podweir behind cilium-cni", got)
	}
	if h.read(t, own) != before || h.read(t, file) != string(dropIn) {
		t.Error("a file changed")
	}
	if got := strings.Join(h.node(t).Conf.Effective(true), " "); got != h.chain(t, own) {
		t.Errorf("Effective() = %q, libcni has %q", got, h.chain(t, own))
	}
}

// TestShared: with cni.exclusive=false podweir's file stays, is in force and
// fits; when the original goes it must go.
func TestShared(t *testing.T) {
	h := newHost(t, nil)
	h.runManager(t, map[string]any{"cni-exclusive": false})
	name := h.splice(t)
	node := h.node(t)
	if node.Conf.Active().Name != name || h.chain(t, name) != "cilium-cni podweir-cni" {
		t.Errorf("in force: %s with %q", node.Conf.Active().Name, h.chain(t, name))
	}
	decide := func() conflist.Action {
		node := h.node(t)
		action, _ := conflist.Decide(conflist.Standing{
			Delivery: profiles.Chain, Original: node.Conf.Original(), Own: &node.Conf.Own()[0],
		})
		return action
	}
	if got := decide(); got != conflist.Leave {
		t.Errorf("Decide() = %v, want leave", got)
	}
	must.OK(t, os.Remove(h.path(own)))
	if got := decide(); got != conflist.Delete {
		t.Errorf("Decide() without the original = %v, want delete", got)
	}
}

// TestHanded: Cilium copies the chain that it is given byte for byte, exclusive
// or not, and podweir needs no file of its own.
func TestHanded(t *testing.T) {
	first := newHost(t, nil)
	first.runManager(t, map[string]any{"cni-exclusive": false})
	handed := first.read(t, first.splice(t))

	h := newHost(t, nil)
	source := filepath.Join(h.root, "handed.conflist")
	must.OK(t, os.WriteFile(source, []byte(handed), 0o644))
	h.runManager(t, map[string]any{"cni-exclusive": true, "read-cni-conf": source})
	if got := h.read(t, own); got != handed {
		t.Errorf("Cilium wrote %q, was given %q", got, handed)
	}
	if got := h.chain(t, own); got != "cilium-cni podweir-cni" {
		t.Errorf("chain %q", got)
	}
	original := h.node(t).Conf.Original()
	if action, why := conflist.Decide(conflist.Standing{Delivery: profiles.Chain, Original: original}); action != conflist.Leave {
		t.Errorf("Decide() = %v because %s, want leave: podweir is in it", action, why)
	}
}

// TestChainedOnAWS: Cilium makes its file from the first one with the target's
// network name. That is podweir's: the profile's warning (source loop) is true,
// and the way out works.
func TestChainedOnAWS(t *testing.T) {
	h := newHost(t, map[string]string{"10-aws.conflist": `{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni"},{"type":"portmap"}]}`})
	name := h.splice(t)
	h.runManager(t, map[string]any{"cni-exclusive": false, "cni-chaining-mode": "aws-cni"})
	if got := h.chain(t, own); got != "aws-cni portmap podweir-cni cilium-cni" {
		t.Errorf("Cilium made the chain %q, from podweir's file", got)
	}
	node := h.node(t)
	if node.Profile.Name != "cilium-on-aws" {
		t.Errorf("profile %s", node.Profile.Name)
	}
	action, why := conflist.Decide(conflist.Standing{
		Delivery: profiles.Chain, Original: node.Conf.Original(), Own: &node.Conf.Own()[0],
	})
	if action != conflist.Delete || !strings.Contains(why, "has podweir in it already") {
		t.Errorf("Decide(%s) = %v because %s, want delete", name, action, why)
	}
}

// TestNetworkNames: the name that decides where the drop-in belongs.
func TestNetworkNames(t *testing.T) {
	for mode, want := range map[string]string{"none": "cilium", "portmap": "portmap", "flannel": "flannel"} {
		h := newHost(t, nil)
		h.runManager(t, map[string]any{"cni-exclusive": false, "cni-chaining-mode": mode})
		if got := h.node(t).Conf.Original().Network.Name; got != want {
			t.Errorf("chaining mode %s: network %s, want %s", mode, got, want)
		}
		h.splice(t)
	}
}
