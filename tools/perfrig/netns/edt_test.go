// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
)

// skb is struct __sk_buff as far as BPF_PROG_TEST_RUN takes it.
type skb struct {
	_       [skbTstamp]byte
	Tstamp  uint64
	WireLen uint32
	_       [28]byte
}

// TestPrivilegedDepartureTimes: at 10 Mbit/s a frame of 1,000 bytes takes
// 0.8 ms. The first leaves at once; those behind it one after the other; the
// last time never lies further than 2 s away.
func TestPrivilegedDepartureTimes(t *testing.T) {
	requireRoot(t)
	if n := unsafe.Sizeof(skb{}); n != 192 {
		t.Fatalf("struct __sk_buff of %d bytes, want 192", n)
	}
	d, err := newDepartures(10_000_000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	send := func() (verdict int32, tstamp uint64) {
		t.Helper()
		out := skb{}
		code, err := d.prog.Run(&ebpf.RunOptions{Data: make([]byte, 1000), Context: skb{WireLen: 1000}, ContextOut: &out})
		if err != nil {
			t.Fatal(err)
		}
		return int32(code), out.Tstamp
	}
	if verdict, tstamp := send(); verdict != edtNext || tstamp != 0 {
		t.Fatalf("first packet: verdict %d at %d, want %d and no time", verdict, tstamp, edtNext)
	}
	const each = 800_000
	before := uint64(0)
	passed := 0
	for range 5000 {
		verdict, tstamp := send()
		if verdict == edtDrop {
			break
		}
		if verdict != edtNext {
			t.Fatalf("packet %d: verdict %d, want %d", passed, verdict, edtNext)
		}
		if passed > 0 && tstamp != 0 && tstamp-before != each {
			t.Fatalf("packet %d leaves %d ns behind the last, want %d", passed, tstamp-before, each)
		}
		before = tstamp
		passed++
	}
	// Two seconds hold 2,500; the test itself takes some of the time.
	if passed < 2490 || passed > 4000 {
		t.Errorf("%d packets before the first drop, want 2,500 and a few", passed)
	}
}
