// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package wiremeter

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// The meter stands on other people's hooks: whatever the packet, its verdict
// is TCX_NEXT.
func TestPrivilegedVerdictIsNext(t *testing.T) {
	testutil.RequireRoot(t)
	const jumboOption, tcxNext = 0xc2, -1
	objects := must.Get(load(0))(t)
	defer objects.Close()
	ethernet := func(hi, lo byte, rest ...byte) []byte {
		p := make([]byte, 64)
		p[12], p[13] = hi, lo
		copy(p[14:], rest)
		return p
	}
	for name, packet := range map[string][]byte{
		"IPv4 TCP":          ethernet(8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 6),
		"IPv4 with options": ethernet(8, 0, 0x4F, 0, 0, 50, 0, 0, 0, 0, 64, 6),
		"IPv4 cut short":    ethernet(8, 0, 0x4F, 0, 0, 50, 0, 0, 0, 0, 64, 6)[:40],
		"IPv6 UDP":          ethernet(0x86, 0xDD, 0x60, 0, 0, 0, 0, 10, 17),
		"IPv6 jumbo":        ethernet(0x86, 0xDD, hopByHop(6, 0, jumboOption)...),
		"IPv6 options":      ethernet(0x86, 0xDD, hopByHop(17, 1, 1)...),
		"IPv6 cut short":    ethernet(0x86, 0xDD, hopByHop(6, 0, jumboOption)...)[:55],
		"ARP":               ethernet(8, 6),
		"unknown":           ethernet(0x12, 0x34),
	} {
		// Segments make the program look at the headers.
		ctx := skbContext{GSOSegs: 3, GSOSize: 100}
		verdict, err := objects.Programs["received"].Run(&ebpf.RunOptions{Data: packet, Context: ctx})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		must.Be(t, name+": verdict", tcxNext, int32(verdict))
	}
}

// hopByHop is an IPv6 header and the beginning of a hop-by-hop header.
func hopByHop(next, length, option byte) []byte {
	p := make([]byte, 43)
	p[0], p[40], p[41], p[42] = 0x60, next, length, option
	return p
}

// skbContext is struct __sk_buff, as far as BPF_PROG_TEST_RUN lets it be set.
type skbContext struct {
	_       [164]byte
	GSOSegs uint32
	_       [8]byte
	GSOSize uint32
	_       [12]byte
}
