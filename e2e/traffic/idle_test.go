// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
)

// A TCP sender in the pod that has nothing under way does not lose what it sends next, though
// its flow has more than its share: no answer would come that makes it try again, and it would
// wait for a timer of at least 200 ms.
func TestPrivilegedIdleSenderWaitsForNoTimer(t *testing.T) {
	const (
		capacity = 100 * mbit
		flows    = 16
		part     = 20_000 // bytes: all of them take 26 ms of the cap
		last     = 3 * time.Second
		timer    = 200 * time.Millisecond
		// Where the processors are taken away for long, some parts take long for that.
		mostLate = 0.02
	)
	r := newRig(t)
	pod := shaped(t, r, capacity, map[string]any{})
	ctx, cancel := context.WithTimeout(t.Context(), last)
	defer cancel()
	to := takeParts(t, r.Client, part)
	var senders [flows]chan []time.Duration
	for i := range senders {
		senders[i] = make(chan []time.Duration)
		conn := connectFrom(t, &pod.Host, to)
		go func() { senders[i] <- sendParts(ctx, conn, part) }()
	}
	var took []time.Duration
	for _, s := range senders {
		took = append(took, <-s...)
	}
	if len(took) < flows {
		t.Fatalf("only %d parts were sent", len(took))
	}
	slices.Sort(took)
	first, _ := slices.BinarySearch(took, timer)
	late := 1 - float64(first)/float64(len(took))
	t.Logf("%d parts, half of them within %v; %.2f %% took %v or longer", len(took), took[len(took)/2], 100*late, timer)
	if late > mostLate {
		t.Errorf("%.2f %% of %d parts took %v or longer, want at most %.0f %%", 100*late, len(took), timer, 100*mostLate)
	}
}

// takeParts accepts connections in h, and answers each part on them with a byte.
func takeParts(t *testing.T, h *lab.Host, part int) (addr string) {
	t.Helper()
	var listener net.Listener
	err := h.Netns.Do(func() (err error) {
		listener, err = net.Listen("tcp4", net.JoinHostPort(h.V4.String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for data := make([]byte, part); err == nil; {
					if _, err = io.ReadFull(conn, data); err == nil {
						_, err = conn.Write(data[:1])
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func connectFrom(t *testing.T, h *lab.Host, to string) (conn net.Conn) {
	t.Helper()
	err := h.Netns.Do(func() (err error) {
		conn, err = net.Dial("tcp4", to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sendParts sends the next part when the answer to the last one came, and returns how long
// each took.
func sendParts(ctx context.Context, conn net.Conn, part int) (took []time.Duration) {
	data, answer := make([]byte, part), make([]byte, 1)
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := conn.Write(data); err != nil {
			return took
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return took
		}
		took = append(took, time.Since(began))
	}
	return took
}
