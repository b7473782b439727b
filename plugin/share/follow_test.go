// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package share_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/share"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// class is a class of HTB: it sends a packet if it has any tokens, and owes what that takes beyond them.
type class struct {
	rate          units.ByteRate
	burst, tokens float64
	packets       []float64
	sent, waiting float64
}

func (c *class) step(offered int, size float64) {
	for range offered {
		c.packets = append(c.packets, size)
		c.waiting += size
	}
	c.tokens = min(c.tokens+float64(c.rate)*step.Seconds(), c.burst)
	for len(c.packets) > 0 && c.tokens >= 0 {
		c.tokens -= c.packets[0]
		c.sent += c.packets[0]
		c.waiting -= c.packets[0]
		c.packets = c.packets[1:]
	}
}

// What a queue sends is known to some packets between two questions to the kernel, at shares that change.
func TestFollowerKnowsWhatLeaves(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	c, f := &class{}, &share.Follower{}
	var came, came0 float64
	asked := 0
	for ms := range 20_000 {
		if ms%perTick == 0 {
			ask := f.Came(units.Bytes(came-came0), tick)
			came0 = came
			if off := f.Sent() - units.Bytes(c.sent); ms > 0 && !ask && (int64(off) > 8_000 || int64(off) < -8_000) {
				t.Fatalf("%d ms: %v left, want about %.0f", ms, f.Sent(), c.sent)
			}
			if ask || f.Unsure() && ms%200 == 0 {
				f.Is(units.Bytes(c.sent), units.Bytes(c.waiting))
				asked++
			}
			if f.Sent() > units.Bytes(came) {
				t.Fatalf("%d ms: %v left of %.0f bytes that came", ms, f.Sent(), came)
			}
		}
		if ms%100 == 0 {
			c.rate = units.ByteRate(20_000 + random.IntN(2_000_000))
			c.burst = float64(c.rate) * bucket.Seconds()
			f.Share(c.rate, units.Bytes(c.burst))
		}
		offered := 0
		if ms/300%2 == 0 { // all that it can send, and more, in turns with little
			offered = int(float64(c.rate)/1_000_000) + random.IntN(2)
		} else if ms%50 == 0 {
			offered = 1
		}
		came += float64(offered) * 1000
		c.step(offered, 1000)
	}
	must.AtMost(t, "times that the kernel was asked", 20_000/perTick/3, asked)
}

// A processor that comes late, or a queue that drops, lets less out than the share: that is made up for.
func TestFollowerIsPutRight(t *testing.T) {
	t.Parallel()
	f := &share.Follower{}
	f.Share(1_000_000, 5000)
	if !f.Came(0, 0) {
		t.Fatal("the kernel need not be asked of a queue of which nothing is known")
	}
	f.Is(1<<40, 0)
	if f.Unsure() || f.Sent() != 0 {
		t.Errorf("%v left before it was followed, unsure %v, want 0 and false", f.Sent(), f.Unsure())
	}
	f.Came(100_000, tick)
	if told := f.Sent(); told < 20_000 || told > 23_000 || !f.Unsure() {
		t.Errorf("%v left of 100,000 in 20 ms at 1 MB/s, unsure %v", told, f.Unsure())
	}
	told := f.Sent()
	f.Is(1<<40+10_000, 90_000)
	if f.Sent() != told || f.Waiting() != 90_000 {
		t.Errorf("%v left and %v wait, want no less than it said before, and 90,000", f.Sent(), f.Waiting())
	}
	f.Came(0, tick)
	must.AtMost(t, "what left, where it said too much before", 33_000, f.Sent())
	f.Is(5_000, 0) // the queue was made anew
	f.Came(3_000, tick)
	if got := f.Sent(); got > told+10_000 || f.Unsure() {
		t.Errorf("%v left of a queue that was made anew, unsure %v", got, f.Unsure())
	}
}

func FuzzFollower(f *testing.F) {
	f.Add([]byte{1, 200, 30, 4, 5, 6})
	f.Add([]byte{0, 0, 255, 255, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		f := &share.Follower{}
		last := units.Bytes(0)
		for len(b) >= 3 {
			kind, n := b[0]%4, uint64(b[1])<<(b[2]%56)
			b = b[3:]
			waited := f.Waiting()
			switch kind {
			case 0:
				f.Share(units.ByteRate(min(n, uint64(units.MaxRate.ByteRate()))), units.Bytes(min(n/200, 1<<30)))
			case 1:
				f.Is(units.Bytes(n), units.Bytes(n%100_000))
			default:
				f.Came(units.Bytes(min(n, 1<<40)), time.Duration(n%uint64(time.Minute)))
				if f.Waiting() > waited+units.Bytes(min(n, 1<<40)) {
					t.Fatalf("%v wait, of %v before and %v that came", f.Waiting(), waited, n)
				}
			}
			if f.Sent() < last {
				t.Fatalf("%v left, and %v before", f.Sent(), last)
			}
			last = f.Sent()
		}
	})
}

// A queue is still when it may send its whole burst again, and not before: until then time changes what it lets out.
func TestFollowerIsStill(t *testing.T) {
	t.Parallel()
	f := &share.Follower{}
	f.Share(100_000, 2000)
	if f.Still() {
		t.Error("still, and the kernel was never asked")
	}
	f.Is(0, 0)
	for i, c := range []struct {
		came  units.Bytes
		still bool
	}{{0, true}, {3000, false}, {0, true}, {9000, false}, {0, false}} { // 2,000 bytes come back in 20 ms
		if f.Came(c.came, tick); f.Still() != c.still {
			t.Errorf("tick %d: still: %v, want %v", i, f.Still(), c.still)
		}
	}
	f.Is(9000, 0)
	if f.Came(0, time.Second); !f.Still() {
		t.Error("not still when a second has passed")
	}
}
