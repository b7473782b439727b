// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package share

import (
	"time"

	"github.com/podweir/podweir/plugin/units"
)

// fullFrame is what a class of HTB may send beyond its tokens, in bytes: one packet, here of Ethernet's
// usual MTU. Of larger ones it is more, until [Follower.Is] tells.
const fullFrame = 1514

// Follower follows what leaves a queue with a share by what comes to it, so that the kernel need
// not be asked at each tick: the class lets out its share while anything waits. Where that is not
// so, because the processor came late or the queue dropped something, [Follower.Is] puts it right.
// It is not safe for concurrent use.
type Follower struct {
	rate  units.ByteRate
	burst int64
	// tokens is what may leave at once, in bytes; less than 0 after a packet that was larger.
	tokens  int64
	waiting units.Bytes
	// left is what left the queue by all that is known, told the most that [Follower.Sent] returned.
	left, told units.Bytes
	// total is the kernel's counter when it was asked, and sure what had left by then.
	total, sure units.Bytes
	asked       bool
	unsure      bool
}

// Share says that the queue lets out so much from now on, and at once after a pause.
func (f *Follower) Share(rate units.ByteRate, burst units.Bytes) {
	f.rate, f.burst = rate, int64(burst)
	f.tokens = min(f.tokens, f.burst)
}

// Came takes what came to the queue in a time. It says whether the kernel should be asked at
// once: it seems that packets begin to wait.
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

// Is takes what the kernel says: what left the queue since it was made, and what waits in it. Less
// than before has left a new queue. What had left when it is called first is not counted.
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

// Unsure says that the kernel should be asked now and then: something waits, or seemed to.
func (f *Follower) Unsure() bool { return f.unsure }

// Sent is what left the queue since it was followed. It never becomes less: what seemed to leave and did
// not leaves later.
func (f *Follower) Sent() units.Bytes {
	f.told = max(f.told, f.left)
	return f.told
}

// Waiting is what waits in the queue.
func (f *Follower) Waiting() units.Bytes { return f.waiting }
