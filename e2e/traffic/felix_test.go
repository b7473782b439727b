// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// felix is a double of what Calico's agent does since v3.30 with the root qdisc
// of a pod's host side (felix/dataplane/linux/qos/qos.go at 04baf82929c4). It
// takes every token bucket there for its own.
type felix struct {
	rig    *Rig
	device string
	// bitsPerSec is the pod's limit, as it reads it from the same annotation; 0
	// is a pod without one.
	bitsPerSec uint64
}

// felixBurst is Calico's default burst, in bits (DefaultBurst in
// libcalico-go/lib/apis/v3).
const felixBurst = 4 << 30

// assert brings the root qdisc to what Felix wants, as it does whenever the
// pod's endpoint changes: CreateOrUpdateIngressQdisc replaces any root,
// RemoveIngressQdisc deletes every token bucket.
func (f *felix) assert() error {
	link, err := netlink.LinkByName(f.device)
	if err != nil {
		return err
	}
	if f.bitsPerSec > 0 {
		return netlink.QdiscReplace(f.qdisc(link.Attrs().Index))
	}
	qdiscs, err := netlink.QdiscList(link)
	if err != nil {
		return err
	}
	for _, q := range qdiscs {
		if tbf, ok := q.(*netlink.Tbf); ok {
			err = errors.Join(err, netlink.QdiscDel(tbf))
		}
	}
	return err
}

// qdisc is what makeTBF and GetTBFValues make of the limit: 25 ms of the rate
// behind a bucket in ticks, cut off at 32 bits.
func (f *felix) qdisc(index int) *netlink.Tbf {
	bytesPerSec := f.bitsPerSec / 8
	usec := min(felixBurst/8*1e6/float64(bytesPerSec), math.MaxUint32)
	buffer := min(usec*netlink.TickInUsec(), math.MaxUint32)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bytesPerSec, Buffer: uint32(buffer),
		Limit: uint32(min(float64(bytesPerSec)*0.025+buffer, math.MaxUint32)),
	}
}

// start asserts each second until the test ends.
func (f *felix) start(t *testing.T) {
	t.Helper()
	if err := f.rig.Lab.Node().Do(f.assert); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		var err error
		for tick := time.NewTicker(time.Second); err == nil; {
			select {
			case <-ctx.Done():
				tick.Stop()
				done <- nil
				return
			case <-tick.C:
				err = f.rig.Lab.Node().Do(f.assert)
			}
		}
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the double of Felix: %v", err)
		}
	})
}

// Beside Calico 3.30 and later, which owns the root qdisc of the host side, the
// queue that Calico's profile asks for holds the cap, loses no more than a tuned
// reference plugin, and nothing of podweir's has to be mended.
func TestPrivilegedFelixOwnsTheHostSide(t *testing.T) {
	const capacity = 20 * mbit
	r := newRig(t)
	load := Case{Cap: capacity, Direction: Ingress, Load: TCP1, Duration: 8 * time.Second}
	reference, err := r.Reference(t.Context(), capacity, TunedBurst)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reference.closeMeters() })
	tuned, err := r.MeasureOn(t.Context(), reference, load)
	if err != nil {
		t.Fatal(err)
	}
	for name, annotated := range map[string]uint64{"annotated": capacity, "limited by podweir's defaults": 0} {
		t.Run(name, func(t *testing.T) {
			pod := shaped(t, r, capacity, map[string]any{"ingressPlace": "ifb"})
			(&felix{r, pod.HostIfName, annotated}).start(t)
			got, err := r.MeasureOn(t.Context(), pod, load)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("worst second %.4f of the cap, used %.3f, sent again %.0f and %.0f (tuned reference plugin %.0f and %.0f)",
				got.WorstShare(), got.Used, got.Early, got.Late, tuned.Early, tuned.Late)
			if err := errors.Join(got.Err(), RetransmitsErr(got, tuned)); err != nil {
				t.Error(err)
			}
			kept, err := pod.KeptBeside(t.Context(), Ingress, TCP1, capacity, 2, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("kept connection, median: %v, bystander %v", kept.Pod.Quantile(0.5), kept.Bystander.Quantile(0.5))
			// One packet in front of it takes 0.6 ms at this cap.
			if a, b := kept.Pod.Quantile(0.5), kept.Bystander.Quantile(0.5); a > 2*b+time.Millisecond {
				t.Errorf("median %v, bystander %v", a, b)
			}
			if err := pod.Check(t.Context()); err != nil {
				t.Errorf("CHECK = %v, want nothing to mend", err)
			}
		})
	}
}
