// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/step"
)

// HTTPLoad describes light HTTP flows, each on a connection of its own.
type HTTPLoad struct {
	// From and To are the client and the server.
	From, To *Host `json:"-"`
	// ResponseBytes is the size of a response's body.
	ResponseBytes int
	// PerSecond is the rate of an open loop: requests are sent when they are
	// due, whatever became of the earlier ones. 0 means a closed loop.
	PerSecond float64
	// Concurrency is the number of clients of a closed loop, each of which
	// sends as soon as its last response is complete. An open loop has any number.
	Concurrency int
	// Duration is how long requests are sent.
	Duration time.Duration
	// Timeout is when a request is given up.
	Timeout time.Duration
}

type httpArgs struct {
	HTTPLoad

	Addr netip.AddrPort
}

// StartHTTP starts a server and the load on it.
func (l *Lab) StartHTTP(ctx context.Context, load HTTPLoad) (*RequestsRun, error) {
	args := httpArgs{HTTPLoad: load, Addr: netip.AddrPortFrom(load.To.V4, 0)}
	return startBoth[Latencies](ctx, l, end{load.To, "http-server", &args}, &args.Addr, end{load.From, "http-client", &args})
}

func runHTTPServer(args httpArgs, ready func(any), quit <-chan struct{}) any {
	config := net.ListenConfig{Control: control}
	listener := step.Get(config.Listen(context.Background(), "tcp", args.Addr.String()))
	body := make([]byte, args.ResponseBytes)
	length := strconv.Itoa(args.ResponseBytes)
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(body) // the client counts what did not arrive
		}),
	}
	server.SetKeepAlivesEnabled(false)
	ready(listener.Addr().String())
	go func() {
		<-quit
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		step.OK(err)
	}
	return struct{}{}
}

// recorder collects samples from many requests.
type recorder struct {
	mu  sync.Mutex
	out Latencies
}

func (r *recorder) add(latency time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Samples = append(r.out.Samples, latency)
	if err != nil {
		r.out.Failed++
		r.out.Reason = err.Error()
	}
}

func (r *recorder) result(elapsed time.Duration) *Latencies {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Elapsed = elapsed
	return Merge(&r.out)
}

func freshClient(args *httpArgs) *http.Client {
	dialer := net.Dialer{Control: control}
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, DialContext: dialer.DialContext,
		},
		Timeout: args.Timeout,
	}
}

// control sets the congestion control of every socket before it is used.
func control(_, _ string, conn syscall.RawConn) error {
	var setErr error
	err := conn.Control(func(fd uintptr) { setErr = setCongestionControl(int(fd)) })
	return errors.Join(err, setErr)
}

func get(client *http.Client, url string) (err error) {
	defer step.End(&err)
	req := step.Get(http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody))
	resp, err := client.Do(req)
	step.OK(err)
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && n != resp.ContentLength {
		err = fmt.Errorf("%d bytes of %d", n, resp.ContentLength)
	}
	return errors.Join(err, resp.Body.Close())
}

func runHTTPClient(args httpArgs, ready func(any), quit <-chan struct{}) any {
	step.OK(preciseThread())
	ready(nil)
	load, rec := args.openLoop, &recorder{}
	if args.PerSecond == 0 {
		load = args.closedLoop
	}
	client, url := freshClient(&args), "http://"+args.Addr.String()+"/"
	return rec.result(load(rec, quit, func() error { return get(client, url) }))
}

// openLoop makes requests when they are due, and returns how long it did.
func (a *httpArgs) openLoop(rec *recorder, quit <-chan struct{}, request func() error) time.Duration {
	var pending sync.WaitGroup
	start := monotonic()
	gap := float64(time.Second) / a.PerSecond
	for i := 0; ; i++ {
		due := start + time.Duration(float64(i)*gap)
		if due >= start+a.Duration || closed(quit) {
			break
		}
		sleepUntil(due)
		pending.Go(func() {
			err := request()
			rec.add(monotonic()-due, err)
		})
	}
	sleepUntil(start + a.Duration)
	elapsed := monotonic() - start
	pending.Wait()
	return elapsed
}

func (a *httpArgs) closedLoop(rec *recorder, quit <-chan struct{}, request func() error) time.Duration {
	var clients sync.WaitGroup
	start := monotonic()
	for range a.Concurrency {
		clients.Go(func() {
			for monotonic() < start+a.Duration && !closed(quit) {
				sent := monotonic()
				err := request()
				rec.add(monotonic()-sent, err)
			}
		})
	}
	clients.Wait()
	return monotonic() - start
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
