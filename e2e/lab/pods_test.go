// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// interrupted is the shape of what iperf3 3.12 prints when it is ended by a
// signal.
const interrupted = `{
	"start": {"tcp_mss_default": 1448, "connected": [{"socket": 5}]},
	"intervals": [
		{"streams": [{"bytes": 600, "rtt": 2500}, {"bytes": 400, "rtt": 150}], "sum": {"start": 0, "end": 0.5, "bytes": 1000, "retransmits": 7, "sender": true}},
		{"streams": [{}], "sum": {"start": 0.5, "end": 1.0004, "bytes": 2000, "retransmits": 2}},
		{"streams": [{}], "sum": {"start": 1.0004, "end": 1.5, "bytes": 3000, "retransmits": 0}},
		{"streams": [{}], "sum": {"start": 1.5, "end": 1.5, "bytes": 500, "retransmits": 0}}
	],
	"end": {},
	"error": "interrupt - the client has terminated"
}`

func TestParseIperf(t *testing.T) {
	r := must.Get(parseIperf([]byte(interrupted)))(t)
	must.Be(t, "MSS", 1448, r.Start.MSS)
	want := []BulkInterval{
		{End: 0.5, Bytes: 1000, Retransmits: 7, Flows: []float64{600, 400}, RoundTrips: []time.Duration{2500 * time.Microsecond, 150 * time.Microsecond}},
		{Start: 0.5, End: 1.0004, Bytes: 2000, Retransmits: 2, Flows: []float64{0}},
		{Start: 1.0004, End: 1.5, Bytes: 3000, Flows: []float64{0}},
		{Start: 1.5, End: 1.5, Bytes: 500, Flows: []float64{0}},
	}
	must.Match(t, "intervals", want, r.intervals())
}

func TestBetween(t *testing.T) {
	r := must.Get(parseIperf([]byte(interrupted)))(t)
	for name, tc := range map[string]struct {
		from, to           float64
		bytes, retransmits float64
	}{
		"everything but the empty interval": {0, 2, 6000, 9},
		"warm-up left out":                  {0.5, 2, 5000, 2},
		"half an interval is left out":      {0.7, 2, 3000, 0},
		"an end some ms late is in":         {0, 1, 3000, 9},
		"nothing":                           {3, 4, 0, 0},
	} {
		w := Between(r.intervals(), tc.from, tc.to)
		if w.Bytes != tc.bytes || w.Retransmits != tc.retransmits {
			t.Errorf("%s: Between(%v, %v) = %+v, want %v bytes, %v retransmits",
				name, tc.from, tc.to, w, tc.bytes, tc.retransmits)
		}
	}
	must.Be(t, "BitsPerSec() of nothing", 0, Between(nil, 0, 1).BitsPerSec())
	w := Between([]BulkInterval{{End: 0.5, Bytes: 1000}}, 0, 1)
	must.Be(t, "BitsPerSec()", 16000, w.BitsPerSec())
}

// A thread of a higher real-time priority is to the watch what the machine below
// is: it takes the processor away.
func TestPrivilegedProcessorsAreSeenToBeAway(t *testing.T) {
	testutil.RequireRoot(t)
	// Go interrupts what runs for 10 ms.
	const taken, least = 12 * time.Millisecond, 5 * time.Millisecond
	p := must.Get(WatchProcessors())(t)
	took := make(chan error)
	// Where the machine is busy, times without a processor follow each other as one.
	for range 20 {
		go func() { took <- keepProcessor(taken) }()
		must.OK(t, <-took)
		<-time.After(2 * taken)
	}
	if longest, sum := p.StopSum(); longest < least || sum < longest+least {
		t.Errorf("away for %v at most and %v in all, want %v or more and %v more", longest, sum, least, least)
	}
}

// keepProcessor lets nobody else use the first processor of this process.
func keepProcessor(last time.Duration) error {
	runtime.LockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	if err := takeProcessor(cpu, 2); err != nil {
		return err
	}
	for end := wiremeter.Now() + last; wiremeter.Now() < end; {
	}
	return nil
}
