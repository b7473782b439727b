// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/confdir"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// leastInForce is the share of looks in which the chain in force has both plugins.
const leastInForce = 0.999

// beside is a way of podweir's into the chain.
type beside struct {
	name, delivery string
	// inlined says that the primary CNI's network rules out drop-ins.
	inlined bool
	// took is the delivery that podweir takes.
	took string
}

// TestPrivilegedBesideAMesh starts pods on a node with a real agent and a double of a mesh's
// installer, whoever came first: the chain in force has both plugins, pods are limited by
// podweir's plugin, and whoever goes leaves a node on which pods start. The mesh's plugin
// is a copy of portmap, which passes the result on.
func TestPrivilegedBesideAMesh(t *testing.T) {
	mark.Nightly(t, "it takes 8 minutes: each installer, delivery and order")
	for _, way := range []beside{
		{"auto", "auto", false, "drop-in"},
		{"auto, drop-ins off", "auto", true, "chain"},
		{"chain", "chain", false, "chain"},
	} {
		for _, mesh := range confdir.Meshes() {
			for _, first := range []string{"podweir", "mesh"} {
				t.Run(strings.Join([]string{way.name, mesh.Name, first + " first"}, ", "), func(t *testing.T) {
					b := &meshNode{Node: suite.Members[0], beside: way, mesh: mesh}
					b.test(t, first == "mesh")
				})
			}
		}
	}
}

// meshNode is the node that both write to.
type meshNode struct {
	*cluster.Node
	beside

	mesh      confdir.Mesh
	installer *confdir.Installer
}

func (b *meshNode) confDir() string { return b.Path("/etc/cni/net.d") }

func (b *meshNode) test(t *testing.T, meshFirst bool) {
	t.Helper()
	uninstall(t)
	t.Cleanup(func() { b.asBefore(t) })
	if b.inlined {
		b.write(t, strings.Replace(b.Conflist(), "{", `{"loadOnlyInlinedPlugins": true,`, 1))
	}
	if meshFirst {
		b.installs(t)
	}
	install(t, "delivery="+b.delivery)
	if !meshFirst {
		b.installs(t)
	}
	both := func() bool {
		chain := confdir.Chain(b.confDir())
		return slices.Contains(chain, confdir.Podweir) && slices.Contains(chain, b.mesh.Plugin)
	}
	b.soon(t, "both in the chain", both)
	b.startsPods(t)
	metrics(t, b.Node, func(page string) error {
		if want := fmt.Sprintf("podweir_delivery_info{delivery=%q} 1", b.took); !strings.Contains(page, want) {
			return fmt.Errorf("no %s: %s", want, grep(page, "podweir_delivery_info"))
		}
		return nil
	})
	if _, err := fetch(t.Context(), b.Node, "/readyz"); err != nil {
		t.Errorf("agent beside the mesh: %v", err)
	}
	green(t, b.Node)
	b.oneGoes(t, meshFirst)
}

// startsPods looks at the chain in force a thousand times a second while pods start and go.
func (b *meshNode) startsPods(t *testing.T) {
	t.Helper()
	done, looked := make(chan struct{}), make(chan confdir.Looks, 1)
	go func() { looked <- confdir.Look(b.confDir(), b.mesh.Plugin, time.Millisecond, done) }()
	began := time.Now()
	var names []string
	for i := range 6 {
		name := fmt.Sprintf("meshed-%d", i)
		create(t, manifest(name, b.Node, limits("20M", "10M")))
		names = append(names, name)
	}
	_, err := workload.AllReady(t.Context(), suite.Cluster, names...)
	close(done)
	l := <-looked
	must.OK(t, err)
	t.Logf("%d looks in %.1f s: mesh in %d, podweir in %d; the mesh wrote %d files", l.All, time.Since(began).Seconds(), l.Mesh, l.Podweir, b.installer.Writes())
	if least := leastInForce * float64(l.All); float64(l.Mesh) < least || float64(l.Podweir) < least || l.All < 100 {
		t.Errorf("of %d looks %d have the mesh and %d podweir, want %.1f %% of many: %s", l.All, l.Mesh, l.Podweir, 100*leastInForce, l.Without)
	}
	b.byThePlugin(t, names)
}

// byThePlugin wants pods that are limited by podweir's plugin, and not a moment later by its
// agent.
func (b *meshNode) byThePlugin(t *testing.T, names []string) {
	t.Helper()
	// It ends with an error if any pod is not limited; then it has written all the same.
	out, failed := podweir(t, b.Node, "status", "-o", "json")
	var status struct{ Attachments []struct{ Pod, By string } }
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(errors.Join(failed, err))
	}
	by := map[string]string{}
	for _, a := range status.Attachments {
		by[a.Pod] = a.By
	}
	for _, name := range names {
		if got := by["default/"+name]; got != "plugin" {
			t.Errorf("%s is limited by %q, want the plugin", name, got)
		}
	}
}

// oneGoes uninstalls the one that came first. A pod starts afterwards.
func (b *meshNode) oneGoes(t *testing.T, mesh bool) {
	t.Helper()
	if mesh {
		must.OK(t, b.installer.Uninstall())
		b.soon(t, "podweir without the mesh", func() bool {
			chain := confdir.Chain(b.confDir())
			return slices.Contains(chain, confdir.Podweir) && !slices.Contains(chain, b.mesh.Plugin)
		})
		ready := run(t, "unmeshed", 0, limits("20M", "10M"))
		ready.limited(t, 20_000_000, 10_000_000)
		green(t, b.Node)
		return
	}
	uninstall(t)
	// A file of the mesh's own, made of podweir's, goes on calling podweir's plugin, which
	// stays for that.
	copied := b.mesh.Restless && b.took == "chain"
	b.soon(t, "the mesh without podweir", func() bool {
		chain := confdir.Chain(b.confDir())
		return slices.Contains(chain, b.mesh.Plugin) && slices.Contains(chain, confdir.Podweir) == copied
	})
	run(t, "without-podweir", 0, limits("20M", "10M"))
}

func (b *meshNode) installs(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(b.Path("/opt/cni/bin/portmap"))
	must.OK(t, err)
	if b.installer, err = b.mesh.Start(b.confDir(), b.Path("/opt/cni/bin"), program); err != nil {
		t.Fatal(err)
	}
	b.soon(t, "the installer wrote", func() bool { return b.installer.Writes() > 0 })
}

// asBefore leaves the node without a mesh.
func (b *meshNode) asBefore(t *testing.T) {
	t.Helper()
	if b.installer != nil {
		b.installer.Stop()
	}
	uninstall(t)
	b.write(t, b.Conflist())
	if _, err := b.Exec(context.WithoutCancel(t.Context()), "bash", "-c", "rm -f /etc/cni/net.d/02-* /opt/cni/bin/{istio,linkerd}-cni"); err != nil {
		t.Error(err)
	}
}

func (b *meshNode) write(t *testing.T, text string) {
	t.Helper()
	if err := b.WriteFile(cluster.Conflist, text); err != nil {
		t.Error(err)
	}
}

func (b *meshNode) soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	eventually(t, 30*time.Second, what, func(context.Context) error {
		if !cond() {
			return fmt.Errorf("chain in force: %v", confdir.Chain(b.confDir()))
		}
		return nil
	})
}
