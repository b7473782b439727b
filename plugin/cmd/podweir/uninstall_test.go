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
	"strconv"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const primary = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"},{"type":"portmap"}]}`

// nodeRoot makes the root of a node with a primary CNI, and a podweir-cni to
// install.
func nodeRoot(t *testing.T) (root, binary string) {
	t.Helper()
	other := hostTree(t, map[string]string{conflist.Type: "podweir-cni"})
	return hostTree(t, map[string]string{"etc/cni/net.d/10-x.conflist": primary, "opt/cni/bin/ptp": "ptp"}), filepath.Join(other, conflist.Type)
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
	list := must.Get(libcni.NetworkConfFromFile(filepath.Join(confDir, "00-podweir-10-x.conflist")))(t)
	stdin := map[string]any{}
	must.OK(t, json.Unmarshal(list.Plugins[len(list.Plugins)-1].Bytes, &stdin))
	stdin["name"], stdin["cniVersion"], stdin["onError"] = list.Name, list.CNIVersion, "closed"
	stdin["runtimeConfig"] = map[string]any{"bandwidth": map[string]any{"ingressRate": 10_000_000, "egressRate": 10_000_000}}
	stdin["prevResult"] = map[string]any{
		"cniVersion": list.CNIVersion, "interfaces": []any{map[string]any{"name": "eth0", "sandbox": netns}},
	}
	n := &noticed{cli: c, conf: stdin, container: container, path: netns}
	must.OK(t, n.verb(t, "ADD"))
}

// TestPrivilegedUninstall installs, starts two pods, one with its ingress queue
// on an ifb, uninstalls, and finds files, pins and devices as before.
func TestPrivilegedUninstall(t *testing.T) {
	testutil.RequireQdisc(t, "ifb", "tbf")
	c := newCLI(t)
	second := c.secondPod(t)
	root, binary := nodeRoot(t)
	confDir := filepath.Join(root, "etc/cni/net.d")
	files, before := must.Tree(t, root), devices(t, c.node, c.pod, second)
	install := []string{"install", "--root", root, "--binary", binary}
	c.must(t, install...)
	c.add(t, confDir, "one", c.pod.Path())
	c.must(t, append(install, "--default", "ingressPlace=ifb")...)
	c.add(t, confDir, "two", second.Path())
	must.Len(t, "attachments", 2, parse[status.Report](t, c, "status").Attachments)
	must.Have(t, "the devices", devices(t, c.node, c.pod, second), "tbf", "podweir")
	if out := c.must(t, "uninstall", "--root", root, "--dry-run"); strings.Count(out, "detach") != 2 || !strings.Contains(out, "00-podweir-10-x") {
		t.Errorf("uninstall --dry-run prints %s", out)
	}
	must.Len(t, "attachments after uninstall --dry-run", 2, parse[status.Report](t, c, "status").Attachments)
	for _, said := range []string{"done   remove " + filepath.Join(confDir, "00-podweir-10-x"), "done   nothing"} {
		must.Have(t, "uninstall", c.must(t, "uninstall", "--root", root), said)
		must.Match(t, "devices", before, devices(t, c.node, c.pod, second))
		must.Match(t, "files", files, must.Tree(t, root))
		for _, dir := range []string{c.pins, c.run} {
			must.Is(t, dir+" after uninstall", fs.ErrNotExist, must.Err(os.Stat(dir)))
		}
	}
}

// What uninstall did is what it prints: also where podweir's directories and a limit without a record were all there was,
// and nothing that it could not do.
func TestPrivilegedUninstallSaysWhatItDid(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNoticed(t, nil)
	n.loseRecord(t)
	root, _ := nodeRoot(t)
	for _, dry := range []bool{true, false} {
		out := n.must(t, "uninstall", "--root", root, fmt.Sprint("--dry-run=", dry))
		verb := map[bool]string{true: "to do ", false: "done  "}[dry]
		must.Have(t, "uninstall", out, "tbf", "on eth0 in", "remove "+n.pins+": ", "remove "+n.run+": ")
		must.Be(t, "lines with "+verb, strings.Count(out, "\n"), strings.Count(out, verb))
	}
	n = newNoticed(t, nil)
	root, binary := nodeRoot(t)
	n.must(t, "install", "--root", root, "--binary", binary)
	entry := filepath.Join(root, "etc/cni/net.d/00-podweir-10-x.conflist")
	plugin := filepath.Join(root, "opt/cni/bin", conflist.Type)
	must.OK(t, os.WriteFile(filepath.Join(root, "etc/cni/net.d/05-other.conflist"),
		[]byte(`{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"ptp"},{"type":"podweir-cni"}]}`), 0o600))
	n.broken(t, []string{"!" + plugin, "done remove " + entry, "done detach"}, "uninstall", "--root", root) // another chain calls the plugin
}

func TestInstallPrints(t *testing.T) {
	root, binary := nodeRoot(t)
	run := func(args ...string) string {
		out, _, err := execute(t, append(args, "--root", root, "--binary", binary, "--dry-run", "--pins", t.TempDir(), "--run", t.TempDir())...)
		must.OK(t, err)
		return out
	}
	before := must.Tree(t, root)
	out := run("install", "--default", "lightShare=80%", "--default", `unshapedSubnets=["10.0.0.0/8"]`)
	must.Have(t, "install --dry-run", out, "chain: ", "ptp", "/etc/cni/net.d", "/opt/cni/bin", `"lightShare":"80%","unshapedSubnets":["10.0.0.0/8"]`,
		"to do", filepath.Join(root, "opt/cni/bin/podweir-cni"), "00-podweir-10-x.conflist")
	var v installOutput
	must.OK(t, json.Unmarshal([]byte(run("install", "-o", "json")), &v))
	if len(v.Steps) != 2 || !v.DryRun || v.Decision.Delivery != "chain" {
		t.Errorf("install -o json prints %+v", v)
	}
	for _, tc := range []struct{ args, want []string }{
		{[]string{"--delivery", "chian"}, []string{"chian", "auto, chain, drop-in, handed, nri"}},
		{[]string{"--default", "lightshare=1"}, []string{"lightshare", "lightShare"}},
		{[]string{"--default", "policy"}, []string{"policy", "KEY=VALUE"}},
		{[]string{"--default", "policy=greedy"}, []string{"policy", "greedy", "strict"}},
		{[]string{"--runtime", "docker"}, []string{"docker", "containerd://2.1.3"}},
		{[]string{"--root", "/nowhere"}, []string{"--root", "/nowhere"}},
		{[]string{"--cni-conf-dir", "/etc/none"}, []string{"/etc/none", "/etc/none is not there yet"}},
		{[]string{"--cni-bin-dir", "/opt/none"}, []string{"/opt/none", "--cni-bin-dir"}},
	} {
		_, _, err := execute(t, append([]string{"install", "--root", root, "--binary", binary}, tc.args...)...)
		must.Fail(t, fmt.Sprint("install ", tc.args), err, tc.want...)
	}
	must.Match(t, "files", before, must.Tree(t, root))
}

// The steps that an install took before it failed stay: they are done. A dry run has done none.
func TestStepsOfAnInstallAreDone(t *testing.T) {
	for _, dry := range []bool{false, true} {
		o := newOptions()
		o.v.Set("dry-run", dry)
		var out bytes.Buffer
		must.OK(t, printInstall(o, &out, delivery.Decision{Problem: "disk full"}, []delivery.Step{{Do: "write", Path: "/x"}}))
		if want := map[bool]string{false: "done ", true: "to do "}[dry]; !strings.HasPrefix(out.String(), want) {
			t.Errorf("dry run %v: install prints %q, want %q first", dry, &out, want)
		}
	}
}

// A node as docs/howto/install-on-a-node.md leaves it (by hand) has podweir-cni among the
// plugins, and none beside podweir. The cure that doctor names there has to work.
func TestInstallTakesThePluginThatWasPutThereByHand(t *testing.T) {
	const plugin = "opt/cni/bin/podweir-cni"
	root := hostTree(t, map[string]string{
		plugin:                        "the plugin",
		"etc/cni/net.d/10-x.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge","mtu":1500}]}`,
		"etc/cni/net.d/00-podweir-10-x.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge","mtu":9000},` +
			`{"type":"podweir-cni","capabilities":{"bandwidth":true}}]}`,
	})
	out, err := runPodweir(t, "install", "--root", root, "--delivery", "chain")
	if err != nil || strings.Contains(out, plugin+":") {
		t.Fatalf("install = %v, want none, and no other binary:\n%s", err, out)
	}
	must.Have(t, "podweir's file that follows its original", string(must.Get(os.ReadFile(filepath.Join(root, "etc/cni/net.d/00-podweir-10-x.conflist")))(t)), `"mtu":1500`)
	must.OK(t, os.Remove(filepath.Join(root, plugin)))
	_, err = runPodweir(t, "install", "--root", root, "--delivery", "chain")
	must.Fail(t, "install without any podweir-cni", err, "--binary")
}

// In the chart's container podweir's directory is a mount in a root that is
// read-only: what is in it goes, and that it stays is no error.
func TestPrivilegedRemoveDirOfReadOnlyRoot(t *testing.T) {
	testutil.RequireRoot(t)
	root := t.TempDir()
	dir := filepath.Join(root, "podweir")
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		must.OK(t, unix.Mount(source, target, kind, flags, ""))
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	mount("tmpfs", root, "tmpfs", 0)
	must.OK(t, os.Mkdir(dir, 0o755))
	mount("tmpfs", dir, "tmpfs", 0)
	must.OK(t, unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	record := filepath.Join(dir, "failures", "x.json")
	must.OK(t, errors.Join(os.Mkdir(filepath.Dir(record), 0o755), os.WriteFile(record, []byte("{}"), 0o600)))
	paths := engine.Paths{Run: dir, Pins: filepath.Join(root, "none")}
	must.OK(t, unlessMounted(paths, new(uninstalled).removeDir(dir)))
	must.Len(t, "files that are left", 0, must.Get(os.ReadDir(dir))(t))
	must.OK(t, new(uninstalled).removeDir(paths.Pins)) // it is not there
}

// gc is what the command says; it must not fail.
func (c *cli) gc(t *testing.T, args ...string) string {
	t.Helper()
	out, log, err := c.outputs(t, append([]string{"gc"}, args...)...)
	must.OK(t, err)
	return out + log
}

// A device is gone by what identifies it, and its number is not that alone. status and gc
// judge alike: what status calls gone, gc removes, and what gc leaves, it names.
func TestPrivilegedGoneIsGone(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb")
	for _, tt := range []struct {
		name string
		make func(t *testing.T, n *noticed)
		// status is what it says of the pod, gc what that says; "" if nothing.
		status, gc string
		stays      bool
	}{
		{
			name: "another kind of device has the number of the host end",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				index := n.node.Interface(t, "veth1").Index
				n.pod.Run(t, "ip", "link", "del", "eth0")
				n.node.Run(t, "ip", "link", "add", "uplink", "index", strconv.Itoa(index), "type", "ifb")
				n.unmount(t)
			},
			status: "the pod is gone", gc: "removed",
		},
		{
			name: "another kind of device has the number of the pod's device",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				index := n.pod.Interface(t, "eth0").Index
				n.pod.Run(t, "ip", "link", "del", "eth0")
				n.pod.Run(t, "ip", "link", "add", "eth0", "index", strconv.Itoa(index), "type", "ifb")
			},
			status: withoutEth0, gc: withoutEth0, stays: true,
		},
		{
			name: "the pod's namespace has no name any more, and lives", make: do((*noticed).unmount),
			status: "not known whether the pod is gone: its host end veth1", gc: "its host end veth1", stays: true,
		},
		{
			name: "the pod's namespace has another name",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				other := n.path + "-2"
				must.OK(t, os.WriteFile(other, nil, 0o444))
				t.Cleanup(func() { _ = os.Remove(other) })
				must.OK(t, unix.Mount(n.path, other, "none", unix.MS_BIND, ""))
				t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) })
				n.unmount(t)
			},
			status: "the network namespace that is now at", gc: "-2; if the pod has ended, or goes on without eth0, podweir detach --container c1 --ifname eth0", stays: true,
		},
		{
			name: "an ADD was killed before the record",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.loseRecord(t)
				n.pod.Run(t, "ip", "link", "del", "eth0")
				must.OK(t, os.MkdirAll(filepath.Join(n.pins, "net", "c1,eth0", "eth0"), 0o700))
			},
			gc: "it has no record", stays: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNoticed(t, nil)
			tt.make(t, n)
			var report status.Report
			if out, _ := n.do(t, "status", "-o", "json"); json.Unmarshal([]byte(out), &report) != nil {
				t.Fatal(out)
			}
			out, _ := n.do(t, "status")
			must.Have(t, "status", oneLine(out), tt.status)
			for i := range report.Attachments {
				if gone := report.Attachments[i].Gone; gone == tt.stays {
					t.Errorf("status says gone %v, and gc removes it: %v", gone, !tt.stays)
				}
			}
			for _, dry := range []bool{true, false} {
				out := n.gc(t, fmt.Sprint("--dry-run=", dry))
				if tt.gc == "" && out != "" || !strings.Contains(out, tt.gc) && !dry {
					t.Errorf("podweir gc = %q, want %q in it", out, tt.gc)
				}
				kept, err := filepath.Glob(filepath.Join(n.pins, "net", "*", "*"))
				if stays := tt.stays || dry; err != nil || len(kept) > 0 != stays {
					t.Errorf("after gc --dry-run=%v there is %v (%v), want something: %v", dry, kept, err, stays)
				}
			}
		})
	}
}

// What removes a pod that is gone does not touch the pod whose device has its number now.
func TestPrivilegedAnotherPodHasTheNumber(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNoticed(t, nil)
	next := n.takeNumbers(t)
	gone := n.container
	n.pod, n.path, n.container = next, next.Path(), "c2"
	n.add(t)
	uplink := func() string {
		return n.node.Run(t, "tc", "qdisc", "show", "dev", "uplink") + n.node.Run(t, "tc", "filter", "show", "dev", "uplink", "ingress")
	}
	before := uplink()
	must.Have(t, "the next pod's host end", before, "tbf")
	must.Have(t, "gc", n.gc(t), "removed", gone)
	must.Be(t, "the next pod's host end", before, uplink())
	must.OK(t, n.verb(t, "CHECK"))
}
