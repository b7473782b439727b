// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "the package measures for other tests, and podweir is not in it")

func TestMain(m *testing.M) {
	askOnTheMainThread()
	if WorkerMain() {
		return
	}
	m.Run()
}

// newTestLab makes a lab that goes with the test.
func newTestLab(tb testing.TB) *Lab {
	tb.Helper()
	return newTestLabWith(tb, Options{})
}

func newTestLabWith(tb testing.TB, opts Options) *Lab {
	tb.Helper()
	testutil.RequireRoot(tb)
	l, err := New(tb.Context(), opts)
	must.OK(tb, err)
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("Close() = %v, want nil", err)
		}
	})
	return l
}

func mustPod(tb testing.TB, l *Lab, chained ...Entry) (*Pod, *Host) {
	tb.Helper()
	network, err := l.Network("net", chained...)
	must.OK(tb, err)
	pod, err := network.Pod(tb.Context(), PodOptions{Bandwidth: RuntimeBandwidth(20_000_000)})
	must.OK(tb, err)
	client, err := l.Client("client")
	must.OK(tb, err)
	return pod, client
}

func TestPrivilegedLoadPassesInBothFamilies(t *testing.T) {
	mark.Timed(t, "it judges rates or waits")
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			echo, err := l.StartEcho(t.Context(), EchoLoad{
				From: client, To: &pod.Host, IPv6: v6,
				PerSecond: 200, Duration: 500 * time.Millisecond, Timeout: time.Second,
			})
			must.OK(t, err)
			open, err := l.StartHTTP(t.Context(), HTTPLoad{
				From: client, To: &pod.Host, IPv6: v6, ResponseBytes: 6000,
				PerSecond: 100, Duration: 500 * time.Millisecond, Timeout: time.Second,
			})
			must.OK(t, err)
			for what, wait := range map[string]struct {
				result func() (*Latencies, error)
				want   int
			}{
				"kept connection": {func() (*Latencies, error) { return echo.Wait(t.Context()) }, 100},
				"open loop":       {func() (*Latencies, error) { return open.Wait(t.Context()) }, 50},
			} {
				got, err := wait.result()
				must.OK(t, err)
				if len(got.Samples) != wait.want || got.Failed() != 0 {
					t.Errorf("%s: %d samples, errors %v, want %d and none",
						what, len(got.Samples), got.Errors, wait.want)
				}
				t.Logf("%s: p50 %v p99 %v", what, got.Quantile(0.5), got.Quantile(0.99))
			}
		})
	}
}

// bulkThrough returns what passes the reference plugin in two seconds at
// 20 Mbit/s with a given burst, in bits.
func bulkThrough(t *testing.T, burst uint64) *wiremeter.Series {
	t.Helper()
	l := newTestLab(t)
	network, err := l.Network("net", BandwidthEntry())
	must.OK(t, err)
	pod, err := network.Pod(t.Context(), PodOptions{
		Bandwidth: &Bandwidth{EgressRate: 20e6, EgressBurst: burst},
	})
	must.OK(t, err)
	client, err := l.Client("client")
	must.OK(t, err)
	meter, err := wiremeter.Attach(client.Netns, client.IfName, wiremeter.Received)
	must.OK(t, err)
	defer func() {
		if err := meter.Close(); err != nil {
			t.Error(err)
		}
	}()
	from := wiremeter.Now()
	run, err := l.StartElephant(t.Context(), Elephant{
		From: &pod.Host, To: client, Duration: 2 * time.Second,
	})
	must.OK(t, err)
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	series, err := meter.Read(from, wiremeter.Now())
	must.OK(t, err)
	return series
}

// The lab sees a shaper and the lack of one: the reference plugin holds the
// cap with a small burst, and does not with the burst that containerd hands down.
func TestPrivilegedMeterTellsAShaperFromNone(t *testing.T) {
	mark.Timed(t, "it judges rates or waits")
	t.Parallel()
	t.Run("64 kB burst holds", func(t *testing.T) {
		t.Parallel()
		got := float64(bulkThrough(t, 64_000*8).Worst(time.Second))
		// The cap is 2.5 MB/s; the burst and a busy machine's bunching are
		// 64 kB and some ms.
		if got < 2.3e6 || got > 2.7e6 {
			t.Errorf("worst second = %.0f bytes, want 2.5 MB and the burst", got)
		}
	})
	t.Run("the runtime's burst does not", func(t *testing.T) {
		t.Parallel()
		if got := float64(bulkThrough(t, RuntimeBurst).Worst(time.Second)); got < 25e6 {
			t.Errorf("worst second = %.0f bytes, want far more than the cap of 2.5 MB", got)
		}
	})
}

// After Close nothing is left: no namespace, no process, no directory.
func TestPrivilegedCloseLeavesNothing(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	run, err := l.StartElephant(t.Context(), Elephant{
		From: &pod.Host, To: client, Duration: time.Minute,
	})
	must.OK(t, err)
	left := func() []string {
		var out []string
		for _, pattern := range []string{netnsDir, stateRoot} {
			found, err := filepath.Glob(filepath.Join(pattern, l.Name()+"*"))
			must.OK(t, err)
			out = append(out, found...)
		}
		return out
	}
	if len(left()) != 4 {
		t.Fatalf("before Close: %v, want the node, the pod, the client and the directory", left())
	}
	must.OK(t, l.Close())
	if got := left(); len(got) != 0 {
		t.Errorf("after Close: %v, want nothing", got)
	}
	if run.client.running() || run.server.running() {
		t.Error("iperf3 runs after Close")
	}
	if err := l.Close(); err != nil {
		t.Errorf("second Close() = %v, want nil", err)
	}
}

// A plugin's own error message reaches the caller, and the pod is gone.
func TestPrivilegedFailedAddIsTold(t *testing.T) {
	l := newTestLab(t)
	network, err := l.Network("net", BandwidthEntry())
	must.OK(t, err)
	_, err = network.Pod(t.Context(), PodOptions{Name: "bad", Bandwidth: &Bandwidth{EgressRate: 10e6}})
	if err == nil || !strings.Contains(err.Error(), "burst") {
		t.Fatalf("Pod without a burst = %v, want the bandwidth plugin's words about the burst", err)
	}
	if _, err := os.Stat(filepath.Join(netnsDir, l.Name()+"-bad")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of the failed pod's namespace = %v, want that it does not exist", err)
	}
}

// What is locked here is locked on the main thread, and stays there until
// TestMain lets go of it: no other way to that thread is sure.
func init() { runtime.LockOSThread() }

// onMain and given are the threads of TestMain, and of a function that it asked
// for one of its own.
var onMain, given int

// askOnTheMainThread is for TestMain to call.
func askOnTheMainThread() {
	onMain = unix.Gettid()
	onThreadOfItsOwn(func() { given = unix.Gettid() })
	runtime.UnlockOSThread()
}

// A goroutine that happens to be on the main thread, which does not end with
// it, gives its function another one.
func TestThreadOfItsOwnIsNotTheMainThread(t *testing.T) {
	if onMain != unix.Getpid() {
		t.Fatalf("it was requested on thread %d, want the main thread %d", onMain, unix.Getpid())
	}
	if given == 0 || given == unix.Getpid() {
		t.Errorf("the function was on thread %d, want one that is not the main thread", given)
	}
}

// streamed connects to an echo server that sends frames of so many bytes.
func streamed(t *testing.T, frameBytes int) (fd int, ended <-chan error) {
	t.Helper()
	raw, err := json.Marshal(echoArgs{
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), CongestionControl: "cubic", FrameBytes: frameBytes,
	})
	must.OK(t, err)
	at, done := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		_, err := runEchoServer(raw, func(v any) error { at <- v.(netip.AddrPort); return nil }, nil)
		done <- err
	}()
	select {
	case addr := <-at:
		fd, sa, err := tcpSocket(addr, "cubic")
		if err == nil {
			err = unix.Connect(fd, sa)
		}
		must.OK(t, err)
		return fd, done
	case err := <-done:
		t.Fatal(err)
		return 0, nil
	}
}

// TestAnswersGoBetweenFrames: bulk comes without being requested, each request
// has one answer, and the server ends when the client does.
func TestAnswersGoBetweenFrames(t *testing.T) {
	const frame, unasked, requests = 1000, 50, 20
	fd, ended := streamed(t, frame)
	buf := make([]byte, frame)
	for range unasked {
		must.OK(t, readFull(fd, buf))
		if buf[0]|buf[1]|buf[2]|buf[3] == 0 {
			t.Fatal("an answer came before there was a request")
		}
	}
	for range requests {
		if _, err := unix.Write(fd, make([]byte, echoBytes)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range requests {
		if err := readPastFrames(fd, buf); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	must.OK(t, unix.Close(fd))
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ended with %v, want nil", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the server still runs 5 s after the client has closed")
	}
}

func TestFramesThatCannotBe(t *testing.T) {
	if err := serveFrames(0, frameHead); err == nil || !strings.Contains(err.Error(), "more than 4 are needed") {
		t.Errorf("serveFrames of frames without bulk = %v, want how many bytes are needed", err)
	}
	const frame = 1000
	fd, ended := streamed(t, frame)
	if err := readPastFrames(fd, make([]byte, frame/2)); err == nil {
		t.Error("a frame longer than was agreed on was read without an error")
	}
	must.OK(t, unix.Close(fd))
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v, want nil", err)
	}
}

func TestQuantile(t *testing.T) {
	var hundred []int
	for i := range 100 {
		hundred = append(hundred, i+1)
	}
	for name, tc := range map[string]struct {
		in   []int
		q    float64
		want int
	}{
		"nothing":                         {nil, 0.5, 0},
		"one element is every quantile":   {[]int{7}, 0.99, 7},
		"median of two is the lower":      {[]int{1, 2}, 0.5, 1},
		"p99 of a hundred is the 99th":    {hundred, 0.99, 99},
		"p99 of 101 is above 99 %":        {append(slices.Clone(hundred), 101), 0.99, 100},
		"0 is the smallest":               {hundred, 0, 1},
		"1 is the largest":                {hundred, 1, 100},
		"below the range is the smallest": {hundred, -1, 1},
		"above the range is the largest":  {hundred, 2, 100},
	} {
		if got := Quantile(tc.in, tc.q); got != tc.want {
			t.Errorf("%s: Quantile(%v) = %v, want %v", name, tc.q, got, tc.want)
		}
	}
}

func TestWorstIsTheSlowestOfAllRuns(t *testing.T) {
	var first, second recorder
	first.addDue(1*time.Second, 3*time.Millisecond, nil)
	first.addDue(2*time.Second, 9*time.Millisecond, nil)
	first.addDue(3*time.Second, 4*time.Millisecond, nil)
	second.addDue(7*time.Second, 5*time.Millisecond, nil)
	got := Merge(first.result(time.Second), second.result(time.Second)).Worst
	if want := (Request{Due: 2 * time.Second, Took: 9 * time.Millisecond}); got != want {
		t.Errorf("Worst %+v, want %+v", got, want)
	}
}

func TestLatenciesCountFailures(t *testing.T) {
	var rec recorder
	rec.add(3*time.Millisecond, nil)
	rec.add(time.Second, os.ErrDeadlineExceeded)
	rec.add(time.Millisecond, nil)
	got := rec.result(2 * time.Second)
	want := &Latencies{
		Samples: []time.Duration{time.Millisecond, 3 * time.Millisecond, time.Second},
		Errors:  map[string]int{"timeout": 1}, Elapsed: 2 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if rate := got.PerSecond(); rate != 1 {
		t.Errorf("PerSecond() = %v, want 1: a failure is no response", rate)
	}
	if p99 := got.Quantile(0.99); p99 != time.Second {
		t.Errorf("Quantile(0.99) = %v, want the 1s until the request was given up", p99)
	}
}

func TestReasonHasNoPorts(t *testing.T) {
	refused := errors.New("connection refused")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"deadline":       {fmt.Errorf("get: %w", os.ErrDeadlineExceeded), "timeout"},
		"wrapped reset":  {fmt.Errorf("read 10.0.0.1:4711: %w", io.ErrUnexpectedEOF), "unexpected EOF"},
		"operation only": {&net.OpError{Op: "dial", Err: refused}, "connection refused"},
	} {
		if got := reason(tc.err); got != tc.want {
			t.Errorf("%s: reason = %q, want %q", name, got, tc.want)
		}
	}
}

func TestOwnerOfAName(t *testing.T) {
	for name, want := range map[string]bool{
		fmt.Sprintf("pwlab%d-ab12-node", os.Getpid()): true,
		"pwlab4194305-ab12-node":                      false, // above the kernel's largest process ID
		"pwlab-node":                                  true,
		"pwlabx-node":                                 true,
		"somebody":                                    true,
		"pwlab0-node":                                 true,
		"pwlab-1-node":                                true,
	} {
		if got := ownerAlive(name); got != want {
			t.Errorf("ownerAlive(%q) = %v, want %v", name, got, want)
		}
	}
}

// heard are the sizes of the IPv4 packets that a socket has of each kind: the
// protocol, and the ports if it is UDP.
func heard(t *testing.T, fd int) map[[3]uint16][]int {
	t.Helper()
	out := map[[3]uint16][]int{}
	for buf := make([]byte, 1<<16); ; {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return out
		}
		must.OK(t, err)
		if n < ipv4HeaderBytes+udpHeaderBytes {
			t.Fatalf("a packet of %d bytes", n)
		}
		kind := [3]uint16{uint16(buf[9])}
		if kind[0] == unix.IPPROTO_UDP {
			kind[1], kind[2] = binary.BigEndian.Uint16(buf[ipv4HeaderBytes:]), binary.BigEndian.Uint16(buf[ipv4HeaderBytes+2:])
		}
		out[kind] = append(out[kind], n)
	}
}

// TestPrivilegedTunnelIsOneFlow: TCP bulk and calls inside, and outside one UDP
// flow of packets that each fit the link.
func TestPrivilegedTunnelIsOneFlow(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	innerPod, innerClient, err := l.Tunnel(&pod.Host, client)
	must.OK(t, err)
	var fd int
	err = client.Netns.Do(func() error {
		var err error
		const all = uint16(unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8) // in the order of the network
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
		if err != nil {
			return err
		}
		link, err := unix.NewIfreq(podIfName)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, link); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(link.Uint32())}),
		)
	})
	must.OK(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	const last = 300 * time.Millisecond
	stream, err := l.StartEcho(t.Context(), EchoLoad{
		From: innerClient, To: innerPod, PerSecond: 100, Duration: last, Timeout: time.Second, FrameBytes: 1 << 14,
	})
	must.OK(t, err)
	calls, err := l.StartCalls(t.Context(), Calls{
		From: innerPod, To: innerClient, Flows: 2, PacketBytes: 200, PerSecond: 100, Duration: last,
	})
	must.OK(t, err)
	for name, run := range map[string]*RequestsRun{"stream": stream, "calls": calls} {
		got, err := run.Wait(t.Context())
		must.OK(t, err)
		if len(got.Samples) != 30 || got.Failed() != 0 {
			t.Errorf("%s: %d samples, errors %v, want 30 and none", name, len(got.Samples), got.Errors)
		}
	}
	tunnel := [3]uint16{unix.IPPROTO_UDP, tunnelPort, tunnelPort}
	packets := heard(t, fd)
	full := 0
	for _, n := range packets[tunnel] {
		if n > 1500 {
			t.Fatalf("a packet of %d bytes, want at most 1,500", n)
		}
		if n == 1500 {
			full++
		}
	}
	if n := len(packets[tunnel]); n < 100 || full < 50 {
		t.Errorf("%d packets, %d of them full, want at least 100 and 50", n, full)
	}
	delete(packets, tunnel)
	for kind, sizes := range packets {
		t.Errorf("%d packets of protocol %d, ports %d to %d, want only the tunnel's", len(sizes), kind[0], kind[1], kind[2])
	}
}
