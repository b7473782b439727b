// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rivals

import (
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// skb is struct __sk_buff as far as BPF_PROG_TEST_RUN takes it.
type skb struct {
	_       [160]byte
	WireLen uint32
	_       [28]byte
}

// verdicts sends packets of so many bytes through a policer, one at a time.
func verdicts(t *testing.T, bytes uint32, bytesPerSec uint64) func() (verdict int32) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	if n := unsafe.Sizeof(skb{}); n != 192 {
		t.Fatalf("struct __sk_buff of %d bytes, want 192", n)
	}
	objects := must.Get(load(bytesPerSec))(t)
	t.Cleanup(objects.Close)
	return func() int32 {
		t.Helper()
		code := must.Get(objects.Programs[program].Run(&ebpf.RunOptions{Data: make([]byte, bytes), Context: skb{WireLen: bytes}}))(t)
		return int32(code)
	}
}

// TestPrivilegedPolicer: the bucket holds a second of the rate from the first packet
// on, here 1,250 of 1,000 bytes, fills at the rate, and lets nothing else pass.
func TestPrivilegedPolicer(t *testing.T) {
	mark.Timed(t, "it judges rates")
	const (
		bytesPerSec, size = 1_250_000, 1000
		next, drop        = -1, 2
	)
	send := verdicts(t, size, bytesPerSec)
	count := func() (passed int) {
		// A machine that cannot send as fast as the rate sees no drop.
		for passed < 20*bytesPerSec/size {
			switch verdict := send(); verdict {
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
	must.Within(t, "packets before the first drop", bytesPerSec/size, bytesPerSec/size+refilled()+1, full)
	<-time.After(100 * time.Millisecond)
	// What is in it after a drop is less than a packet; remainders are lost.
	if got, most := full+count(), bytesPerSec/size+refilled()+1; got < full+50 || got > most {
		t.Errorf("%d packets after 100 ms more, want %d to %d", got, full+50, most)
	}
}
