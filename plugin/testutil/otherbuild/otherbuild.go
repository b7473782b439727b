// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package otherbuild makes a pod one that another build of podweir attached.
package otherbuild

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/testutil"
)

// Put replaces the programs of an attachment, which are pinned in a directory and
// attached in these namespaces, by those of another build: the same with an
// instruction more that does nothing.
func Put(tb testing.TB, dir string, namespaces ...*testutil.NetNS) {
	tb.Helper()
	for _, d := range shaping.Directions {
		for _, object := range []string{"program", "guard", "redirect"} {
			pin := filepath.Join(dir, d.String()+"-"+object)
			was, err := bpfcall.OpenProgram(pin)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				tb.Fatal(err)
			}
			info, err := was.Info()
			if err != nil {
				tb.Fatal(err)
			}
			other := load(tb, info.Name, filepath.Join(dir, d.String()))
			if err := errors.Join(was.Close(), os.Remove(pin), other.Pin(pin)); err != nil {
				tb.Fatal(err)
			}
			for _, ns := range namespaces {
				replaceFilters(tb, ns, info, other)
			}
		}
		replaceLink(tb, filepath.Join(dir, d.String()))
	}
}

// load loads the program with the maps whose pins begin with a path.
func load(tb testing.TB, name, maps string) *bpfcall.Program {
	tb.Helper()
	program, err := image.ProgramByName(name)
	if err != nil {
		tb.Fatal(err)
	}
	fds := make(map[string]int)
	for _, name := range program.MapNames() {
		m, err := ebpf.LoadPinnedMap(maps+"-"+name, nil)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = m.Close() })
		fds[name] = m.FD()
	}
	instructions, err := program.Link(fds)
	if err != nil {
		tb.Fatal(err)
	}
	nothing := []byte{0xbf, 0x11, 0, 0, 0, 0, 0, 0} // r1 = r1
	other, err := bpfcall.LoadProgram(name, image.License, append(nothing, instructions...))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = other.Close() })
	return other
}

// replaceFilters gives the filters with a program another one, on every device of
// a namespace.
func replaceFilters(tb testing.TB, ns *testutil.NetNS, was bpfcall.ProgramInfo, other *bpfcall.Program) {
	tb.Helper()
	devices, err := ns.Handle.Interfaces()
	if err != nil {
		tb.Fatal(err)
	}
	for i := range devices {
		index := devices[i].Index
		d, err := queue.Observe(ns.Handle, index)
		if err != nil {
			tb.Fatal(err)
		}
		if d.Tree.Filter != nil && d.FilterProgramID == was.ID {
			if err := queue.ReplaceClassifier(ns.Handle, index, d.Tree.Filter, other.FD(), was.Name); err != nil {
				tb.Fatal(err)
			}
		}
		for j := range d.HookFilters {
			f := &d.HookFilters[j]
			if f.ProgramID != was.ID {
				continue
			}
			at := queue.Place{Hook: f.Hook, Pref: f.Pref, Handle: f.Handle}
			if ok, err := queue.ReplaceClsact(ns.Handle, index, at, other.FD(), was.Name); err != nil || !ok {
				tb.Fatalf("ReplaceClsact of %s = %v, %v, want it replaced", was.Name, ok, err)
			}
		}
	}
}

// replaceLink gives a pinned program to the TCX link beside it, if there is one.
func replaceLink(tb testing.TB, pins string) {
	tb.Helper()
	l, err := link.LoadPinnedLink(pins+"-link", nil)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	prog, err := ebpf.LoadPinnedProgram(pins+"-program", nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = prog.Close() }()
	if err := l.Update(prog); err != nil {
		tb.Fatal(err)
	}
}
