// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
)

const primary = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"},{"type":"portmap"}]}`

// nodeRoot makes the root of a node with a primary CNI, and a podweir-cni to
// install.
func nodeRoot(t *testing.T) (root, binary string) {
	t.Helper()
	root, binary = t.TempDir(), filepath.Join(t.TempDir(), conflist.Type)
	for name, content := range map[string]string{
		filepath.Join(root, "etc/cni/net.d/10-x.conflist"): primary,
		filepath.Join(root, "opt/cni/bin/ptp"):             "ptp",
		binary:                                             "podweir-cni",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root, binary
}

// treeOf lists what is below a directory with modes and contents.
func treeOf(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			raw, err := os.ReadFile(path)
			out[path] += " " + string(raw)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// secondPod adds a pod to the node.
func (c *cli) secondPod(t *testing.T) *testutil.NetNS {
	t.Helper()
	pod := testutil.NewNetNS(t)
	testutil.VethPair(t,
		testutil.End{NetNS: pod, Name: "eth0", CIDRs: []string{"10.79.0.2/24"}},
		testutil.End{NetNS: c.node, Name: "veth2", CIDRs: []string{"10.79.0.1/24"}})
	return pod
}

var operState = regexp.MustCompile(`state [A-Z]+ `)

// devices shows all devices of namespaces with their qdiscs and filters.
func devices(t *testing.T, namespaces ...*testutil.NetNS) string {
	t.Helper()
	var b strings.Builder
	for _, ns := range namespaces {
		// A fresh device says that it is up some time after it is (linkwatch).
		b.WriteString(operState.ReplaceAllString(ns.Run(t, "ip", "-o", "link", "show"), ""))
		b.WriteString(ns.Run(t, "tc", "qdisc", "show"))
		for _, dev := range []string{"eth0", "veth1", "veth2"} {
			for _, hook := range []string{"ingress", "egress"} {
				// It fails where the device is not.
				out, _ := ns.Command(t, "tc", "filter", "show", "dev", dev, hook).Output()
				fmt.Fprintf(&b, "%s %s: %s\n", dev, hook, out)
			}
		}
	}
	return b.String()
}

// add runs ADD for a pod with podweir's entry of the chain in force, as libcni
// puts it together.
func (c *cli) add(t *testing.T, confDir, container, netns string) {
	t.Helper()
	list, err := libcni.NetworkConfFromFile(filepath.Join(confDir, "00-podweir-10-x.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	stdin := map[string]any{}
	if err := json.Unmarshal(list.Plugins[len(list.Plugins)-1].Bytes, &stdin); err != nil {
		t.Fatal(err)
	}
	stdin["name"], stdin["cniVersion"], stdin["onError"] = list.Name, list.CNIVersion, "closed"
	stdin["runtimeConfig"] = map[string]any{"bandwidth": map[string]any{"ingressRate": 10_000_000, "egressRate": 10_000_000}}
	stdin["prevResult"] = map[string]any{
		"cniVersion": list.CNIVersion, "interfaces": []any{map[string]any{"name": "eth0", "sandbox": netns}},
	}
	raw, err := json.Marshal(stdin)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, log bytes.Buffer
	p := cni.Plugin{Stdout: &stdout, Stderr: &log, Paths: engine.Paths{Pins: c.pins, Run: c.run}}
	err = c.node.Do(func() error {
		return p.Add(&skel.CmdArgs{ContainerID: container, Netns: netns, IfName: "eth0", StdinData: raw})
	})
	if err != nil {
		t.Fatalf("ADD: %v\n%s", err, log.String())
	}
}

// TestPrivilegedUninstall installs, starts two pods, one with its ingress queue
// on an ifb, uninstalls, and finds files, pins and devices as before.
func TestPrivilegedUninstall(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "ifb", "tbf")
	c := newCLI(t)
	second := c.secondPod(t)
	root, binary := nodeRoot(t)
	confDir := filepath.Join(root, "etc/cni/net.d")
	files, before := treeOf(t, root), devices(t, c.node, c.pod, second)
	install := []string{"install", "--root", root, "--binary", binary}
	c.must(t, install...)
	c.add(t, confDir, "one", c.pod.Path())
	c.must(t, append(install, "--default", "ingressPlace=ifb")...)
	c.add(t, confDir, "two", second.Path())
	if rep := parse[status.Report](t, c, "status"); len(rep.Attachments) != 2 {
		t.Fatalf("status: %+v, want two pods", rep)
	}
	if shaped := devices(t, c.node, c.pod, second); !strings.Contains(shaped, "tbf") || !strings.Contains(shaped, "podweir") {
		t.Fatalf("no queue and no ifb in %s", shaped)
	}
	if out := c.must(t, "uninstall", "--root", root, "--dry-run"); strings.Count(out, "detach") != 2 || !strings.Contains(out, "00-podweir-10-x") {
		t.Errorf("uninstall --dry-run prints %s", out)
	}
	if rep := parse[status.Report](t, c, "status"); len(rep.Attachments) != 2 {
		t.Fatalf("after uninstall --dry-run: %+v, want two pods", rep)
	}
	for range 2 {
		c.must(t, "uninstall", "--root", root)
		if diff := cmp.Diff(before, devices(t, c.node, c.pod, second)); diff != "" {
			t.Errorf("devices (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(files, treeOf(t, root)); diff != "" {
			t.Errorf("files (-before +after):\n%s", diff)
		}
		for _, dir := range []string{c.pins, c.run} {
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is there after uninstall: %v", dir, err)
			}
		}
	}
}

// TestPrivilegedGC removes what is kept of a pod that is gone, and of no other.
func TestPrivilegedGC(t *testing.T) {
	testutil.RequireRoot(t)
	c := newCLI(t)
	root, binary := nodeRoot(t)
	c.must(t, "install", "--root", root, "--binary", binary)
	second := c.secondPod(t)
	for container, netns := range map[string]string{"one": c.pod.Path(), "two": second.Path()} {
		c.add(t, filepath.Join(root, "etc/cni/net.d"), container, netns)
	}
	c.must(t, "gc")
	if rep := parse[status.Report](t, c, "status"); len(rep.Attachments) != 2 {
		t.Fatalf("gc removed pods that run: %+v", rep)
	}
	second.Run(t, "ip", "link", "del", "eth0")
	c.must(t, "gc", "--dry-run")
	if n := len(attachments(t, c)); n != 2 {
		t.Errorf("gc --dry-run leaves %d of 2", n)
	}
	c.must(t, "gc")
	if left := attachments(t, c); len(left) != 1 || left[0] != "one" {
		t.Errorf("gc leaves %v, want the pod that runs", left)
	}
}

// attachments are the containers that podweir keeps something of.
func attachments(t *testing.T, c *cli) []string {
	t.Helper()
	node, err := engine.Open(engine.Paths{Pins: c.pins, Run: c.run})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	ids, err := node.List()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.ContainerID
	}
	return out
}

func TestInstallPrints(t *testing.T) {
	root, binary := nodeRoot(t)
	run := func(args ...string) (string, error) {
		cmd := newRoot()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append(args, "--root", root, "--binary", binary, "--dry-run", "--pins", t.TempDir(), "--run", t.TempDir()))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	before := treeOf(t, root)
	out, err := run("install", "--default", "lightShare=80%", "--default", `unshapedSubnets=["10.0.0.0/8"]`)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"chain: ", "ptp", "/etc/cni/net.d", "/opt/cni/bin", `"lightShare":"80%","unshapedSubnets":["10.0.0.0/8"]`,
		"to do", filepath.Join(root, "opt/cni/bin/podweir-cni"), "00-podweir-10-x.conflist",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("install --dry-run prints\n%s\nwant %q in it", out, part)
		}
	}
	out, err = run("install", "-o", "json")
	var v installOutput
	if err != nil || json.Unmarshal([]byte(out), &v) != nil || len(v.Steps) != 2 || !v.DryRun || v.Decision.Delivery != "chain" {
		t.Errorf("install -o json prints %s, %v", out, err)
	}
	for _, tc := range []struct{ args, want []string }{
		{[]string{"--delivery", "chian"}, []string{"chian", "auto, chain, drop-in, handed, nri"}},
		{[]string{"--default", "lightshare=1"}, []string{"lightshare", "lightShare"}},
		{[]string{"--default", "policy"}, []string{"policy", "KEY=VALUE"}},
		{[]string{"--default", "policy=greedy"}, []string{"policy", "greedy", "strict"}},
		{[]string{"--runtime", "docker"}, []string{"docker", "containerd://2.1.3"}},
		{[]string{"--root", "/nowhere"}, []string{"--root", "/nowhere"}},
		{[]string{"--cni-conf-dir", "/etc/none"}, []string{"/etc/none", "there is none"}},
		{[]string{"--cni-bin-dir", "/opt/none"}, []string{"/opt/none", "--cni-bin-dir"}},
	} {
		cmd := newRoot()
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetArgs(append([]string{"install", "--root", root, "--binary", binary}, tc.args...))
		err := cmd.ExecuteContext(t.Context())
		for _, part := range tc.want {
			if !strings.Contains(fmt.Sprint(err), part) {
				t.Errorf("install %v = %v, want %q in it", tc.args, err, part)
			}
		}
	}
	if diff := cmp.Diff(before, treeOf(t, root)); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
}
