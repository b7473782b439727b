// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package share

import (
	"time"

	"github.com/podweir/podweir/plugin/units"
)

// fullFrame is what a class of HTB is assumed to send beyond its tokens, in bytes: one packet. For
// larger packets [Follower.Is] corrects the count.
const fullFrame = 1514

// Follower estimates what leaves a queue from what comes to it, so that the kernel need not be
// asked at each tick. It assumes that the class lets out its share while anything waits. If the
// processor was late or the queue dropped packets, [Follower.Is] corrects the estimate. It is not
// safe for concurrent use.
type Follower struct {
	rate  units.ByteRate
	burst int64
	// tokens is what may leave at once, in bytes; less than 0 after a packet that was larger.
	tokens  int64
	waiting units.Bytes
	// left is the estimate of what left the queue, told the most that [Follower.Sent] returned.
	left, told units.Bytes
	// total is the kernel's counter when the kernel was last asked, and sure what had left by then.
	total, sure units.Bytes
	asked       bool
	unsure      bool
}

// Share sets the rate of the queue, in bytes per second, and how many bytes it lets out at once after
// a pause.
func (f *Follower) Share(rate units.ByteRate, burst units.Bytes) {
	f.rate, f.burst = rate, int64(burst)
	f.tokens = min(f.tokens, f.burst)
}

// Came adds what came to the queue in the time passed. It says whether the kernel should be asked
// at once, because packets seem to begin to wait or it was never asked.
func (f *Follower) Came(came units.Bytes, passed time.Duration) (ask bool) {
	before := f.waiting
	refill := int64(min(f.rate.Bytes(passed), 1<<40))
	may := units.Bytes(max(f.tokens+refill+fullFrame, 0))
	out := min(f.waiting+came, may)
	f.waiting += came - out
	f.tokens = min(f.tokens+refill-int64(out), f.burst)
	f.left += out
	f.unsure = f.unsure || f.waiting > 0
	return before == 0 && f.waiting > 0 || !f.asked
}

// Is takes the kernel's counters: what left the queue since it was made, and what waits in it. A
// total that fell is that of a new queue. What had left at the first call is not counted.
func (f *Follower) Is(total, waiting units.Bytes) {
	switch {
	case !f.asked:
		f.asked = true
	case total < f.total:
		f.sure += total
	default:
		f.sure += total - f.total
	}
	f.left, f.total, f.waiting, f.unsure = f.sure, total, waiting, waiting > 0
}

// Unsure says that the kernel should be asked now and then: packets wait, or seemed to.
func (f *Follower) Unsure() bool { return f.unsure }

// Still says that nothing waits or seemed to, and that the queue may send as much at once as it ever may:
// as long as nothing comes, time changes nothing.
func (f *Follower) Still() bool { return f.asked && !f.unsure && f.tokens == f.burst }

// Sent is what left the queue since the first call of [Follower.Is]. It never falls: what was counted too
// early leaves later.
func (f *Follower) Sent() units.Bytes {
	f.told = max(f.told, f.left)
	return f.told
}

// Waiting is what waits in the queue.
func (f *Follower) Waiting() units.Bytes { return f.waiting }
