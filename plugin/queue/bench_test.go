// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func BenchmarkBuildBands(b *testing.B) {
	d := newDevice(b)
	tree := bandTree(1_250_000, 12_500)
	for b.Loop() {
		must.OK(b, queue.Build(d.Handle, d.index, &tree, queue.Classifier{}))
		b.StopTimer()
		must.OK(b, queue.Remove(d.Handle, d.index, tree.Qdiscs[0].Kind, tree.Qdiscs[0].Handle))
		b.StartTimer()
	}
}

func BenchmarkRemoveBands(b *testing.B) {
	d := newDevice(b)
	tree := bandTree(1_250_000, 12_500)
	for b.Loop() {
		b.StopTimer()
		must.OK(b, queue.Build(d.Handle, d.index, &tree, queue.Classifier{}))
		b.StartTimer()
		must.OK(b, queue.Remove(d.Handle, d.index, tree.Qdiscs[0].Kind, tree.Qdiscs[0].Handle))
	}
}

func BenchmarkObserve(b *testing.B) {
	d := newDevice(b)
	d.build(b, bandTree(1_250_000, 12_500), testutil.Program{FD: -1})
	for b.Loop() {
		d.observe(b)
	}
}

func BenchmarkChange(b *testing.B) {
	d := newDevice(b)
	from, to := bandTree(1_250_000, 12_500), bandTree(2_500_000, 25_000)
	d.build(b, from, testutil.Program{FD: -1})
	for b.Loop() {
		must.OK(b, queue.Change(d.Handle, d.index, &from, &to))
	}
}

func BenchmarkAttachClsact(b *testing.B) {
	d := newDevice(b)
	p := testutil.VerdictProgram(b, "pw_test", -1)
	at := queue.Place{Hook: queue.HookEgress, Pref: 1, Handle: 1}
	for b.Loop() {
		made, err := queue.AttachClsact(d.Handle, d.index, at, queue.Classifier{ProgramFD: p.FD, Name: "pw_test"})
		must.OK(b, err)
		b.StopTimer()
		if _, err := queue.DetachClsact(d.Handle, d.index, at, made); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkProbe(b *testing.B) {
	testutil.RequireRoot(b)
	for b.Loop() {
		if _, err := queue.Probe(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProbeRedirect(b *testing.B) {
	testutil.RequireRoot(b)
	p := testutil.RedirectProgram(b, "pw_redirect", queue.ProbeIFBIndex)
	for b.Loop() {
		if ok, err := queue.ProbeRedirect(p.FD); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}
