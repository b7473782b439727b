// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rivals

import (
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// skb is struct __sk_buff as far as BPF_PROG_TEST_RUN takes it.
type skb struct {
	_       [skbTstamp]byte
	Tstamp  uint64
	WireLen uint32
	_       [28]byte
}

// verdicts sends packets of so many bytes through a program, one at a time.
func verdicts(t *testing.T, bytes uint32, instructions func(state int) asm.Instructions) func() (verdict int32, tstamp uint64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	if n := unsafe.Sizeof(skb{}); n != 192 {
		t.Fatalf("struct __sk_buff of %d bytes, want 192", n)
	}
	p, err := load("rival_test", instructions)
	must.OK(t, err)
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return func() (int32, uint64) {
		t.Helper()
		out := skb{}
		code, err := p.prog.Run(&ebpf.RunOptions{Data: make([]byte, bytes), Context: skb{WireLen: bytes}, ContextOut: &out})
		must.OK(t, err)
		return int32(code), out.Tstamp
	}
}

// TestPrivilegedPolicer: the bucket holds a second of the rate from the first packet
// on, here 1,250 of 1,000 bytes, fills at the rate, and lets nothing else pass.
func TestPrivilegedPolicer(t *testing.T) {
	mark.Timed(t, "it judges rates")
	const bytesPerSec, size = 1_250_000, 1000
	send := verdicts(t, size, func(state int) asm.Instructions { return policer(state, bytesPerSec) })
	count := func() (passed int) {
		// A machine that cannot send as fast as the rate sees no drop.
		for passed < 20*bytesPerSec/size {
			switch verdict, _ := send(); verdict {
			case next:
				passed++
			case drop:
				return passed
			default:
				t.Fatalf("packet %d: verdict %d, want %d or %d", passed, verdict, next, drop)
			}
		}
		t.Fatalf("no drop among %d packets", passed)
		return passed
	}
	began := time.Now()
	full := count()
	refilled := func() int { return int(time.Since(began).Seconds() * bytesPerSec / size) }
	if most := bytesPerSec/size + refilled() + 1; full < bytesPerSec/size || full > most {
		t.Errorf("%d packets before the first drop, want %d to %d", full, bytesPerSec/size, most)
	}
	<-time.After(100 * time.Millisecond)
	// What is in it after a drop is less than a packet; remainders are lost.
	if got, most := full+count(), bytesPerSec/size+refilled()+1; got < full+50 || got > most {
		t.Errorf("%d packets after 100 ms more, want %d to %d", got, full+50, most)
	}
}

// TestPrivilegedDepartureTimesOfCilium: at 10 Mbit/s a frame of 1,000 bytes takes
// 0.8 ms. The first leaves at once; those behind it one after the other; the
// last time never lies further than 2 s away.
func TestPrivilegedDepartureTimesOfCilium(t *testing.T) {
	mark.Timed(t, "it judges rates")
	send := verdicts(t, 1000, func(state int) asm.Instructions { return departures(state, 10_000_000) })
	if verdict, tstamp := send(); verdict != next || tstamp != 0 {
		t.Fatalf("first packet: verdict %d at %d, want %d and no time", verdict, tstamp, next)
	}
	const each = 800_000
	before := uint64(0)
	passed := 0
	for range 5000 {
		verdict, tstamp := send()
		if verdict == drop {
			break
		}
		if verdict != next {
			t.Fatalf("packet %d: verdict %d, want %d", passed, verdict, next)
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
