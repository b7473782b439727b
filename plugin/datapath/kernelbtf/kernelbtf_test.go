// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kernelbtf_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/podweir/podweir/plugin/datapath/kernelbtf"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func ownKernel(tb testing.TB) []byte {
	tb.Helper()
	raw, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if errors.Is(err, os.ErrNotExist) {
		testutil.SkipFeature(tb, "btf")
	}
	must.OK(tb, err)
	return raw
}

// Of every member of some structures of this kernel the offset is the one that the
// library finds, however deep the member is in structures without a name.
func TestOffsetIsTheLibrarys(t *testing.T) {
	spec := must.Get(kernelbtf.Parse(ownKernel(t)))(t)
	all := must.Get(btf.LoadKernelSpec())(t)
	compared := 0
	for _, name := range []string{"Qdisc", "gnet_stats_queue", "net_device", "sk_buff"} {
		var s *btf.Struct
		must.OK(t, all.TypeByName(name, &s))
		want := make(map[string]btf.Bits)
		membersOf(s.Members, 0, want)
		for member, bits := range want {
			if compared++; bits%8 != 0 {
				must.Fail(t, fmt.Sprintf("Offset(%s, %s), which begins at bit %d", name, member, bits), must.Err(spec.Offset(name, member)))
				continue
			}
			must.Be(t, fmt.Sprintf("Offset(%s, %s)", name, member), bits/8, btf.Bits(must.Get(spec.Offset(name, member))(t)))
		}
	}
	must.AtLeast(t, "members that were compared", 100, compared)
}

func membersOf(members []btf.Member, at btf.Bits, into map[string]btf.Bits) {
	for _, m := range members {
		if m.Name != "" {
			into[m.Name] = at + m.Offset
			continue
		}
		switch inner := m.Type.(type) {
		case *btf.Struct:
			membersOf(inner.Members, at+m.Offset, into)
		case *btf.Union:
			membersOf(inner.Members, at+m.Offset, into)
		}
	}
}

func TestOffsetOfNothing(t *testing.T) {
	spec := must.Get(kernelbtf.Parse(ownKernel(t)))(t)
	for _, of := range [][2]string{{"no_such_structure", "dev"}, {"sk_buff", "no_such_member"}} {
		must.Fail(t, fmt.Sprint("Offset of ", of), must.Err(spec.Offset(of[0], of[1])))
	}
}

// Whatever it reads, it ends, and with an offset or an error.
func FuzzOffset(f *testing.F) {
	b := must.Get(btf.NewBuilder([]btf.Type{outer()}, nil))(f)
	raw := must.Get(b.Marshal(nil, nil))(f)
	spec := must.Get(kernelbtf.Parse(raw))(f)
	if got, err := spec.Offset("outer", "deep"); err != nil || got != 12 {
		f.Fatalf("Offset(outer, deep) = %d, %v, want 12", got, err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Fuzz(func(_ *testing.T, raw []byte) {
		spec, err := kernelbtf.Parse(raw)
		if err != nil {
			return
		}
		_, _ = spec.Offset("outer", "deep")
	})
}

// outer has a member in a union in a structure, neither of which has a name.
func outer() *btf.Struct {
	word := &btf.Int{Name: "word", Size: 4}
	union := &btf.Union{Size: 4, Members: []btf.Member{{Name: "first", Type: word}, {Name: "deep", Type: word}}}
	inner := &btf.Struct{Size: 8, Members: []btf.Member{{Name: "before", Type: word}, {Type: union, Offset: 32}}}
	return &btf.Struct{Name: "outer", Size: 16, Members: []btf.Member{
		{Name: "begin", Type: word}, {Name: "next", Type: word, Offset: 32}, {Type: inner, Offset: 64},
	}}
}
