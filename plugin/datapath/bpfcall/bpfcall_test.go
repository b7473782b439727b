// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpfcall_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Instructions of 8 bytes, as in linux/bpf.h.
var (
	returnNext = []byte{
		0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // r0 = -1
		0x95, 0, 0, 0, 0, 0, 0, 0, // exit
	}
	returnNothing = []byte{0x95, 0, 0, 0, 0, 0, 0, 0} // r0 was never set
)

func TestPrivilegedProgram(t *testing.T) {
	testutil.RequireRoot(t)
	p := must.Get(bpfcall.LoadProgram("a_name_of_20_letters", "GPL", returnNext))(t)
	defer func() { _ = p.Close() }()
	i, err := p.Info()
	if err != nil || i.ID == 0 || i.Name != "a_name_of_20_le" || i.Tag == [8]byte{} {
		t.Errorf("Info = %+v, %v, want an ID, the first 15 letters and a tag", i, err)
	}
	path := filepath.Join(testutil.BPFFS(t), "program")
	must.Is(t, "OpenProgram of nothing", os.ErrNotExist, must.Err(bpfcall.OpenProgram(path)))
	must.OK(t, p.Pin(path))
	must.Is(t, "Pin to a name that is taken", os.ErrExist, p.Pin(path), path)
	for what, open := range map[string]func() (*bpfcall.Program, error){
		"OpenProgram": func() (*bpfcall.Program, error) { return bpfcall.OpenProgram(path) },
		"ProgramByID": func() (*bpfcall.Program, error) { return bpfcall.ProgramByID(i.ID) },
	} {
		again := must.Get(open())(t)
		must.Be(t, what, i, must.Get(again.Info())(t))
		// Once more is nothing, or it would close what got the number since.
		for range 2 {
			must.OK(t, again.Close())
		}
	}
}

// The verifier's reasons are in the error.
func TestPrivilegedRefusedProgram(t *testing.T) {
	testutil.RequireRoot(t)
	_, err := bpfcall.LoadProgram("refused", "GPL", returnNothing)
	must.Is(t, "LoadProgram", unix.EACCES, err, "refused", "R0 !read_ok")
}

func TestPrivilegedMap(t *testing.T) {
	testutil.RequireRoot(t)
	m := must.Get(bpfcall.NewMap(&bpfcall.MapSpec{
		Name: "test", Type: unix.BPF_MAP_TYPE_ARRAY, KeyBytes: 4, ValueBytes: 8, MaxEntries: 2,
	}))(t)
	defer func() { _ = m.Close() }()
	first, third, value := []byte{0, 0, 0, 0}, []byte{2, 0, 0, 0}, []byte("podweir!")
	must.OK(t, m.Update(first, value))
	path := filepath.Join(testutil.BPFFS(t), "map")
	must.OK(t, m.Pin(path))
	again := must.Get(bpfcall.OpenMap(path))(t)
	defer func() { _ = again.Close() }()
	got := make([]byte, again.ValueBytes())
	if err := again.Lookup(first, got); err != nil || string(got) != string(value) || again.MaxEntries() != 2 {
		t.Errorf("the opened map has %q of %d entries, %v, want %q of 2", got, again.MaxEntries(), err, value)
	}
	if m.ID() != again.ID() || m.ID() == 0 {
		t.Errorf("the map that was made has ID %d, the opened one %d, want the same", m.ID(), again.ID())
	}
	// The kernel would write behind the end.
	must.Fail(t, "Lookup into 7 bytes", again.Lookup(first, got[:7]), "7 bytes")
	must.Is(t, "Lookup beyond the end", unix.ENOENT, again.Lookup(third, got))
	must.Is(t, "NewMap without sizes", unix.EINVAL, must.Err(bpfcall.NewMap(&bpfcall.MapSpec{Name: "wrong", Type: unix.BPF_MAP_TYPE_ARRAY})), "wrong")
}

// An attach to a list that changed since it was read is refused.
func TestPrivilegedTCXRevision(t *testing.T) {
	testutil.RequireRoot(t)
	if _, err := bpfcall.QueryTCX(1, bpfcall.TCXEgress); errors.Is(err, unix.EINVAL) {
		testutil.SkipFeature(t, "tcx")
	}
	ns := testutil.NewNetNS(t)
	lo := ns.Interface(t, "lo").Index
	var programs []*bpfcall.Program
	for range 2 {
		p := must.Get(bpfcall.LoadProgram("next", "GPL", returnNext))(t)
		defer func() { _ = p.Close() }()
		programs = append(programs, p)
	}
	err := ns.Do(func() error {
		first, err := bpfcall.AttachTCXHead(programs[0], lo, bpfcall.TCXEgress, 0)
		if err != nil {
			return err
		}
		defer func() { _ = first.Close() }()
		seen, err := bpfcall.QueryTCX(lo, bpfcall.TCXEgress)
		if err != nil || len(seen.Programs) != 1 || seen.Revision == 0 {
			t.Errorf("QueryTCX = %+v, %v, want one program and a revision", seen, err)
		}
		_, err = bpfcall.AttachTCXHead(programs[1], lo, bpfcall.TCXEgress, seen.Revision+1)
		must.Is(t, "an attach with another revision", unix.ESTALE, err)
		second, err := bpfcall.AttachTCXHead(programs[1], lo, bpfcall.TCXEgress, seen.Revision)
		if err != nil {
			return err
		}
		defer func() { _ = second.Close() }()
		after, err := bpfcall.QueryTCX(lo, bpfcall.TCXEgress)
		if err != nil || len(after.Programs) != 2 || after.Programs[1] != seen.Programs[0] || after.Revision <= seen.Revision {
			t.Errorf("after a second attach QueryTCX = %+v, %v, want the new one at the head of %+v", after, err, seen)
		}
		return nil
	})
	must.OK(t, err)
}
