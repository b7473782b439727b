// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package image_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/bpf/image"
)

func object(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := bpf.LoadPodweir()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// Every program is linked to what the library makes of the object, with the
// same file descriptors.
func TestImageIsTheObject(t *testing.T) {
	spec := object(t)
	fds := make(map[string]int)
	for name := range spec.Maps {
		fds[name] = 1000 + len(fds)
	}
	for name, p := range spec.Programs {
		var used []string
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			if !ins.IsLoadFromMap() {
				continue
			}
			used = append(used, ins.Reference())
			*ins = ins.WithReference("")
			ins.Constant = int64(fds[used[len(used)-1]])
		}
		var want bytes.Buffer
		if err := p.Instructions.Marshal(&want, binary.LittleEndian); err != nil {
			t.Fatal(err)
		}
		linked, err := image.ProgramByName(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := linked.Link(fds, 256) // what the object has
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("Link of %s is not the object's program (%d bytes, want %d): %v", name, len(got), want.Len(), err)
		}
		slices.Sort(used)
		names := slices.Sorted(slices.Values(linked.MapNames()))
		if want := slices.Compact(used); !slices.Equal(names, want) {
			t.Errorf("MapNames of %s = %v, want %v", name, names, want)
		}
		if p.License != image.License {
			t.Errorf("%s is under %q in the object, %q in the image", name, p.License, image.License)
		}
	}
}

func TestMapsAreTheObjects(t *testing.T) {
	for name, m := range object(t).Maps {
		want := image.Map{
			Name: name, Type: uint32(m.Type), KeyBytes: m.KeySize, ValueBytes: m.ValueSize,
			MaxEntries: m.MaxEntries, Flags: m.Flags,
		}
		if m.InnerMap != nil {
			want.Inner = "pw_chunk"
		}
		if got, err := image.MapByName(name); err != nil || got != want {
			t.Errorf("MapByName(%s) = %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	if _, err := image.ProgramByName("pw_none"); err == nil || !strings.Contains(err.Error(), "pw_none") {
		t.Errorf("ProgramByName of an unknown name = %v, want an error that names it", err)
	}
	if _, err := image.MapByName("pw_none"); err == nil || !strings.Contains(err.Error(), "pw_none") {
		t.Errorf("MapByName of an unknown name = %v, want an error that names it", err)
	}
	p, err := image.ProgramByName("pw_band")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Link(map[string]int{"pw_slab": 3}, image.ByClassID); err == nil || !strings.Contains(err.Error(), "pw_") {
		t.Errorf("Link without maps = %v, want an error that names one", err)
	}
}
