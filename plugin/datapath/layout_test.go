// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/datapath/kernelbtf"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// With the first program the node learns where this kernel has what leads to a
// queue.
func TestPrivilegedLayout(t *testing.T) {
	testutil.RequireRoot(t)
	n, dir := openNode(t)
	if _, err := n.Program("pw_band", image.ByClassID); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "..", "..", "..", "node", "pw_layout"), nil)
	must.OK(t, err)
	defer func() { _ = m.Close() }()
	var got image.Layout
	must.OK(t, m.Lookup(uint32(0), &got))
	raw, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if errors.Is(err, os.ErrNotExist) {
		if got != (image.Layout{}) {
			t.Errorf("layout %+v on a kernel that does not tell its types", got)
		}
		return
	}
	must.OK(t, err)
	types, err := kernelbtf.Parse(raw)
	must.OK(t, err)
	offset := func(structure, member string) uint32 {
		t.Helper()
		at, err := types.Offset(structure, member)
		must.OK(t, err)
		return at
	}
	want := image.Layout{
		SkbDev: offset("sk_buff", "dev"), DevQdisc: offset("net_device", "qdisc"),
		QdiscBacklog: offset("Qdisc", "qstats") + offset("gnet_stats_queue", "backlog"),
	}
	if got != want {
		t.Errorf("layout %+v, want %+v", got, want)
	}
}

// A kernel that lets no program read its memory takes the programs without that, and
// they are of this build.
func TestPrivilegedUnsightedProgram(t *testing.T) {
	testutil.RequireRoot(t)
	n, dir := openNode(t)
	first, err := n.Program("pw_class", image.ByClassID)
	must.OK(t, err)
	p, err := image.ProgramByName("pw_class")
	must.OK(t, err)
	fds := make(map[string]int)
	for _, name := range p.MapNames() {
		m, err := bpfcall.OpenMap(filepath.Join(dir, "..", "..", "..", "node", name))
		must.OK(t, err)
		defer func() { _ = m.Close() }()
		fds[name] = m.FD()
	}
	text, err := p.Link(fds, image.ByClassID)
	must.OK(t, err)
	without, err := bpfcall.LoadProgram(p.Name, image.License, image.Unsighted(text))
	must.OK(t, err)
	defer func() { _ = without.Close() }()
	pin := filepath.Join(dir, "..", "..", "..", "node", "pw_class")
	must.OK(t, errors.Join(os.Remove(pin), without.Pin(pin)))
	again, err := again(t, filepath.Join(dir, "..", "..", "..")).Program("pw_class", image.ByClassID)
	must.OK(t, err)
	if got := programID(t, again); got != programID(t, without) || got == programID(t, first) {
		t.Errorf("the node has program %d, want %d, which is pinned and does without reading", got, programID(t, without))
	}
}
