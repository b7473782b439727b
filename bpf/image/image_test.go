// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package image_test

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func object(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	return must.Get(bpf.LoadPodweir())(t)
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
		must.OK(t, p.Instructions.Marshal(&want, binary.LittleEndian))
		linked := must.Get(image.ProgramByName(name))(t)
		got, err := linked.Link(fds, 256) // what the object has
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("Link of %s is not the object's program (%d bytes, want %d): %v", name, len(got), want.Len(), err)
		}
		slices.Sort(used)
		names := slices.Sorted(slices.Values(linked.MapNames()))
		must.Match(t, "MapNames of "+name, slices.Compact(used), names)
		must.Be(t, "the licence of "+name, image.License, p.License)
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
		must.Be(t, name, want, must.Get(image.MapByName(name))(t))
	}
}

// The programs that look at the queue read the kernel's memory, and a kernel that
// does not let them gets programs that do without, and have a tag of this build, too.
func TestUnsighted(t *testing.T) {
	call := []byte{0x85, 0, 0, 0, 113, 0, 0, 0} // bpf_probe_read_kernel
	fds := map[string]int{"pw_slab": 0, "pw_scratch": 0, "pw_hosts": 0, "pw_subnets": 0, "pw_layout": 0}
	for name, reads := range map[string]int{"pw_band": 3, "pw_class": 3, "pw_police": 0} {
		p := must.Get(image.ProgramByName(name))(t)
		text := must.Get(p.Link(fds, image.ByClassID))(t)
		must.Be(t, name+": places that read the kernel's memory", reads, bytes.Count(text, call))
		without := image.Unsighted(text)
		if bytes.Contains(without, call) || len(without) != len(text) {
			t.Errorf("%s still reads the kernel's memory", name)
		}
		for _, text := range [][]byte{text, without} {
			if sum := sha1.Sum(text); !p.HasTag([8]byte(sum[:8]), image.ByClassID) {
				t.Errorf("%s does not have its own tag", name)
			}
		}
	}
}

// The tags that are in the image are those that are worked out for a program that has another.
func TestTags(t *testing.T) {
	for name := range object(t).Programs {
		p := must.Get(image.ProgramByName(name))(t)
		fds := make(map[string]int)
		for _, m := range p.MapNames() {
			fds[m] = 0
		}
		for carrier := image.ByClassID; carrier <= image.ByHostIngress; carrier++ {
			text := must.Get(p.Link(fds, carrier))(t)
			newer, older := sha256.Sum256(text), sha1.Sum(text)
			if want := [][8]byte{[8]byte(newer[:8]), [8]byte(older[:8])}; !slices.Equal(p.Tags(carrier), want) && p.Carried() || !p.HasTag(want[0], carrier) {
				t.Errorf("%s with carrier %d has tags %x, want %x", name, carrier, p.Tags(carrier), want)
			}
		}
	}
}

func TestUnknownNames(t *testing.T) {
	must.Fail(t, "ProgramByName of an unknown name", must.Err(image.ProgramByName("pw_none")), "pw_none")
	must.Fail(t, "MapByName of an unknown name", must.Err(image.MapByName("pw_none")), "pw_none")
	p := must.Get(image.ProgramByName("pw_band"))(t)
	must.Fail(t, "Link without maps", must.Err(p.Link(map[string]int{"pw_slab": 3}, image.ByClassID)), "pw_")
}
