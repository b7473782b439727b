// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/btf"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// mapStructs are the structs that maps hold, with their sizes: a change of one
// is a change of the ABI version.
var mapStructs = map[string]uintptr{
	"pw_slot":   unsafe.Sizeof(image.Slot{}),
	"pw_config": unsafe.Sizeof(image.Config{}),
	"pw_state":  unsafe.Sizeof(image.State{}),
	"pw_count":  unsafe.Sizeof(image.Count{}),
	"pw_heavy":  unsafe.Sizeof(image.Heavy{}),
	"pw_flow":   unsafe.Sizeof(image.Flow{}),
	"pw_group":  unsafe.Sizeof(image.Group{}),
	"pw_cell":   unsafe.Sizeof(image.Cell{}),
	"pw_rate":   unsafe.Sizeof(image.Rate{}),
	"pw_subnet": unsafe.Sizeof(image.Subnet{}),
	"pw_host":   unsafe.Sizeof(image.Host{}),
	"pw_layout": unsafe.Sizeof(image.Layout{}),
}

// sizes of ABI version 13.
var sizes = map[string]uint32{
	"pw_slot": 18752, "pw_config": 256, "pw_state": 17912, "pw_count": 16, "pw_heavy": 72, "pw_flow": 40, "pw_group": 32,
	"pw_cell": 8, "pw_rate": 16, "pw_subnet": 28, "pw_host": 8, "pw_layout": 12,
}

// No struct that a map holds has a hole: what is not written would be whatever
// the kernel or the stack had there, and Go and C could disagree.
func TestABI(t *testing.T) {
	spec := must.Get(bpf.LoadPodweir())(t)
	for name, goSize := range mapStructs {
		var s *btf.Struct
		if err := spec.Types.TypeByName(name, &s); err != nil {
			t.Errorf("type %s: %v", name, err)
			continue
		}
		if s.Size != sizes[name] || uintptr(s.Size) != goSize {
			t.Errorf("%s has %d bytes in C and %d in Go, want %d: another layout is another ABI version",
				name, s.Size, goSize, sizes[name])
		}
		must.Be(t, "what comes after a hole of "+name, "", firstHole(t, s))
	}
}

// firstHole names the member that does not start where the one before ends.
func firstHole(t *testing.T, s *btf.Struct) string {
	t.Helper()
	var at uint32
	for _, m := range s.Members {
		if m.Offset.Bytes() != at {
			return m.Name
		}
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			t.Fatalf("size of %s.%s: %v", s.Name, m.Name, err)
		}
		at += uint32(size)
	}
	if at != s.Size {
		return "its end"
	}
	return ""
}

// The kernel shows 15 characters of a name, and people look for them.
func TestProgramNames(t *testing.T) {
	spec := must.Get(bpf.LoadPodweir())(t)
	for name := range spec.Programs {
		must.AtMost(t, "characters in "+name, 15, len(name))
		if _, ok := allowedVerdicts[name]; !ok {
			t.Errorf("program %q is not in the table of allowed verdicts", name)
		}
	}
}

// What most packets need is in as few cache lines as it can be: in turns over many
// pods each line is fetched again.
func TestHotFieldsShareCacheLines(t *testing.T) {
	const (
		line   = 64
		ofIPv6 = 6 // keys
	)
	var (
		slot  image.Slot
		state = unsafe.Offsetof(slot.State)
		keys  = unsafe.Offsetof(slot.HashKeys) + ofIPv6*unsafe.Sizeof(slot.HashKeys[0])
		light = state + unsafe.Offsetof(slot.State.Counts) + unsafe.Sizeof(image.Count{})
		heavy = state + unsafe.Offsetof(slot.State.FairExtra)
		cfg   = unsafe.Offsetof(slot.Config)
	)
	for what, ok := range map[string]bool{
		"a configuration has whole lines": cfg%line == 0 && unsafe.Sizeof(slot.Config[0])%line == 0,
		"the first two lines of a configuration have all of a light packet, and how long heavy ones wait": unsafe.Offsetof(slot.Config[0].FairMost) < 2*line,
		"two lines have the keys of IPv4 and what a light packet needs of the state":                      keys%line == 0 && light == keys+2*line,
		"one line has what a heavy packet needs besides":                                                  heavy%line == 0 && state+unsafe.Offsetof(slot.State.WaitBytes) == heavy+line,
		"a slot has an odd number of lines":                                                               unsafe.Sizeof(slot)%(2*line) == line,
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
}
