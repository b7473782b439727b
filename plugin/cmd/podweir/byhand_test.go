// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A node as docs/howto/install-on-a-node.md leaves it (by hand) has podweir-cni among the
// plugins, and none beside podweir. The cure that doctor names there has to work.
func TestInstallTakesThePluginThatWasPutThereByHand(t *testing.T) {
	root := t.TempDir()
	const plugin = "opt/cni/bin/podweir-cni"
	for name, content := range map[string]string{
		plugin:                        "the plugin",
		"etc/cni/net.d/10-x.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge","mtu":1500}]}`,
		"etc/cni/net.d/00-podweir-10-x.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge","mtu":9000},` +
			`{"type":"podweir-cni","capabilities":{"bandwidth":true}}]}`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil { //nolint:gosec // a plugin is executable
			t.Fatal(err)
		}
	}
	out, err := runPodweir(t, "install", "--root", root, "--delivery", "chain")
	if err != nil || strings.Contains(out, plugin+":") {
		t.Fatalf("install = %v, want none, and no other binary:\n%s", err, out)
	}
	made, err := os.ReadFile(filepath.Join(root, "etc/cni/net.d/00-podweir-10-x.conflist"))
	if err != nil || !strings.Contains(string(made), `"mtu":1500`) {
		t.Errorf("podweir's file does not follow its original (%v): %s", err, made)
	}
	if err := os.Remove(filepath.Join(root, plugin)); err != nil {
		t.Fatal(err)
	}
	if out, err := runPodweir(t, "install", "--root", root, "--delivery", "chain"); err == nil || !strings.Contains(err.Error(), "--binary") {
		t.Errorf("install without any podweir-cni = %v, want an error that names --binary:\n%s", err, out)
	}
}
