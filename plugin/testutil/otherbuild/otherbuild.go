// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package otherbuild makes a pod one that another build of podweir attached.
package otherbuild

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Put replaces the programs of podweir's on the devices of namespaces, and on the
// TCX links that are pinned in a directory of an interface, by those of another
// build: the same with an instruction more that does nothing. node is the directory
// of the node's pins.
func Put(tb testing.TB, node, dir string, namespaces ...*testutil.NetNS) {
	tb.Helper()
	for _, ns := range namespaces {
		replaceFilters(tb, node, ns)
	}
	for _, d := range terms.Directions {
		for _, name := range []datapath.Link{datapath.ProgramLink, datapath.CeilingLink} {
			replaceLink(tb, node, filepath.Join(dir, d.String()+"-"+string(name)), slot(tb, node, dir, d))
		}
	}
}

func slot(tb testing.TB, node, dir string, d terms.Direction) image.Carrier {
	tb.Helper()
	n := datapath.OpenSlab(filepath.Dir(node), node)
	defer n.Close()
	number, err := n.Slot(dir, d)
	if err != nil && !errors.Is(err, datapath.ErrNoSlot) {
		tb.Fatal(err)
	}
	return image.Carrier(number)
}

// load loads the program of another build over the node's maps.
func load(tb testing.TB, node, name string, carrier image.Carrier) *bpfcall.Program {
	tb.Helper()
	program := must.Get(image.ProgramByName(name))(tb)
	fds := make(map[string]int)
	for _, name := range program.MapNames() {
		m := must.Get(ebpf.LoadPinnedMap(filepath.Join(node, name), nil))(tb)
		tb.Cleanup(func() { _ = m.Close() })
		fds[name] = m.FD()
	}
	instructions := must.Get(program.Link(fds, carrier))(tb)
	nothing := []byte{0xbf, 0x11, 0, 0, 0, 0, 0, 0} // r1 = r1
	other := must.Get(bpfcall.LoadProgram(name, image.License, append(nothing, instructions...)))(tb)
	tb.Cleanup(func() { _ = other.Close() })
	return other
}

// replaceFilters gives podweir's filters another program, on every device of a
// namespace.
func replaceFilters(tb testing.TB, node string, ns *testutil.NetNS) {
	tb.Helper()
	devices := must.Get(ns.Handle.Interfaces())(tb)
	other := func(f *queue.Filter) queue.Classifier {
		return queue.Classifier{ProgramFD: load(tb, node, f.Name, image.ByClassID).FD(), Name: f.Name, Slot: uint16(f.ClassID)}
	}
	for i := range devices {
		index := devices[i].Index
		d := must.Get(queue.Observe(ns.Handle, index))(tb)
		if f := d.Classifier; f != nil && datapath.Ours(f.ProgramID, f.Name, f.Tag) {
			must.OK(tb, queue.ReplaceClassifier(ns.Handle, index, d.Tree.Filter, other(d.Classifier)))
		}
		for j := range d.HookFilters {
			f := &d.HookFilters[j]
			if !queue.Ours(f) || f.Name == queue.MirredName {
				continue
			}
			at := queue.Place{Hook: f.Hook, Pref: f.Pref, Handle: f.FilterHandle}
			if ok, err := queue.ReplaceClsact(ns.Handle, index, at, other(f)); err != nil || !ok {
				tb.Fatalf("ReplaceClsact of %s = %v, %v, want it replaced", f.Name, ok, err)
			}
		}
	}
}

// replaceLink gives a pinned TCX link another program, if there is one.
func replaceLink(tb testing.TB, node, pin string, slot image.Carrier) {
	tb.Helper()
	l, err := bpfcall.OpenLink(pin)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must.OK(tb, err)
	defer func() { _ = l.Close() }()
	id := must.Get(l.ProgramID())(tb)
	was := must.Get(bpfcall.ProgramByID(id))(tb)
	defer func() { _ = was.Close() }()
	is := must.Get(was.Info())(tb)
	for _, carrier := range []image.Carrier{image.ByHostEgress, image.ByHostIngress, slot} {
		if !datapath.Current(is.Name, is.Tag, carrier) {
			continue
		}
		must.OK(tb, l.Update(load(tb, node, is.Name, carrier)))
		return
	}
}
