// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
	"github.com/podweir/podweir/tools/vmrig/guest"
)

const root = "../../.."

func TestMain(m *testing.M) {
	if guest.IsInit() {
		guest.Init()
	}
	if lab.WorkerMain() {
		return
	}
	if len(os.Args) > 1 && os.Args[1] == GuestCommand {
		err := Guest(context.Background(), ".")
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // the test binary is a guest's program here
	}
	m.Run()
}

func TestFindPort(t *testing.T) {
	dir := t.TempDir()
	for port, name := range map[string]string{"vport0p1": "org.qemu.guest_agent.0", "vport1p2": portName} {
		if err := os.Mkdir(filepath.Join(dir, port), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, port, "name"), []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := findPort(dir); err != nil || got != "vport1p2" {
		t.Errorf("findPort = %q, %v, want vport1p2", got, err)
	}
	if _, err := findPort(t.TempDir()); err == nil || !strings.Contains(err.Error(), portName) {
		t.Errorf("findPort without a port = %v, want an error that names it", err)
	}
}

// fakeGuest answers like a guest.
type fakeGuest struct {
	hang chan struct{}
	fail error
}

func (f *fakeGuest) Unavailable(c spec.Cell, why *string) error {
	*why = "kernel lacks sch_" + c.Phase.Discipline
	return nil
}

func (f *fakeGuest) Run(r spec.Run, into *record.Sample) error {
	if f.hang != nil {
		<-f.hang
	}
	into.Metrics = map[string]float64{"round": float64(r.Round)}
	into.Latencies = map[string]*stats.Histogram{"kept": stats.NewHistogram([]time.Duration{time.Millisecond, time.Second})}
	into.Errors = map[string]int{"kept: timeout": 2}
	return f.fail
}

// fakeMachines are some that run, with a guest of its own; they end by end.
func fakeMachines(t *testing.T, f *fakeGuest) *machines {
	t.Helper()
	host, port := net.Pipe()
	server := rpc.NewServer()
	if err := server.RegisterName(guestService, f); err != nil {
		t.Fatal(err)
	}
	go server.ServeCodec(jsonrpc.NewServerCodec(port))
	life, stop := context.WithCancel(context.Background())
	dir := filepath.Join(t.TempDir(), "machines")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m := &machines{client: jsonrpc.NewClient(host), stop: stop, dir: dir, ended: make(chan struct{})}
	go func() {
		<-life.Done()
		m.err = life.Err()
		close(m.ended)
	}()
	t.Cleanup(stop)
	return m
}

func oneRun() *spec.Run {
	return &spec.Run{Round: 2, Cell: spec.Cell{
		Phase:    spec.Phase{Name: "c", Kind: spec.Qdisc, Discipline: "cake"},
		Workload: spec.Workload{Name: "w", Kind: spec.Latency, Seconds: 20},
	}}
}

func TestRunBringsTheGuestsSample(t *testing.T) {
	s := &Substrate{now: fakeMachines(t, &fakeGuest{})}
	why, err := s.Unavailable(t.Context(), &oneRun().Cell)
	if err != nil || why != "kernel lacks sch_cake" {
		t.Errorf("Unavailable = %q, %v, want the guest's word", why, err)
	}
	into := &record.Sample{Round: 2, LoadBefore: 0.5}
	if err := s.Run(t.Context(), oneRun(), into); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"round": 2}, into.Metrics); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if h := into.Latencies["kept"]; h == nil || h.Max() < time.Second {
		t.Errorf("latencies = %v, want the guest's", into.Latencies)
	}
	if into.Errors["kept: timeout"] != 2 || into.LoadBefore != 0.5 {
		t.Errorf("sample = %+v, want the guest's errors and the host's load", into)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestMachinesDoNotOutliveAFailure: those on which a run went wrong are ended,
// and the next run gets others.
func TestMachinesDoNotOutliveAFailure(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx   context.Context
		guest *fakeGuest
		dead  bool
		want  string
	}{
		"the run failed":        {t.Context(), &fakeGuest{fail: errors.New("no iperf3")}, false, "no iperf3"},
		"interrupted":           {cancelled, &fakeGuest{hang: hang}, false, context.Canceled.Error()},
		"the machine has ended": {t.Context(), &fakeGuest{hang: hang}, true, "the machine has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			m := fakeMachines(t, tc.guest)
			s := &Substrate{now: m}
			if tc.dead {
				m.stop()
			}
			if err := s.Run(tc.ctx, oneRun(), &record.Sample{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Run = %v, want %q", err, tc.want)
			}
			if s.now != nil {
				t.Error("the machines are still in use")
			}
			select {
			case <-m.ended:
			default:
				t.Error("the machines still run")
			}
			if _, err := os.Stat(m.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("their directory is still there: %v", err)
			}
		})
	}
}
