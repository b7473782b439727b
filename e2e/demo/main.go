// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command demo compares podweir with the reference bandwidth plugin on real
// pods, made through a real conflist, under load from real tools.
//
// It needs root, iperf3 and iproute2, and the binaries that `make build
// refplugins` leaves in bin. It touches no device of the host's own network
// namespace and removes everything it made, also after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/demo/result"
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/engine"
)

const (
	// memoryPods is how many pods share the noise of /proc/meminfo.
	memoryPods = 10
	// memoryTries is how often memory is measured if the rest of the machine
	// got into the difference.
	memoryTries = 2
)

// errLeftovers means that something the demo made is still there.
var errLeftovers = errors.New("not everything could be removed")

// options are the command line.
type options struct {
	caps, cases, congestion, json string
}

func main() {
	if lab.WorkerMain() {
		return
	}
	var o options
	flag.StringVar(&o.caps, "caps", "10M,100M", "caps to try, in bits per second")
	flag.StringVar(&o.cases, "cases", "a,b,b2,c,d,e,f",
		"a: no plugin, b: bandwidth plugin, b2: the same tuned by hand, c: podweir strict, d: podweir elephants, e and f: doubles of Calico's and Cilium's limits")
	flag.StringVar(&o.congestion, "cc", "cubic", "TCP congestion control of all flows")
	flag.StringVar(&o.json, "json", "demo.json", "where to write the numbers; - is stdout, and the text goes to stderr")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first Ctrl-C a second one ends the program at once; what it
	// leaves is removed by the next run.
	context.AfterFunc(ctx, stop)
	out := os.Stdout
	if o.json == "-" {
		out = os.Stderr
	}
	err := run(ctx, out, o)
	switch {
	case errors.Is(err, errLeftovers):
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; everything it made is removed")
		os.Exit(130) // as a shell reports a SIGINT
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o options) (err error) {
	picked, err := pick(scenarios(), o.cases)
	if err != nil {
		return err
	}
	caps, err := parseCaps(o.caps)
	if err != nil {
		return err
	}
	if err := checkTools(); err != nil {
		return err
	}
	began := time.Now()
	used := inUse(engine.DefaultPaths)
	l, err := lab.New(ctx, lab.Options{CongestionControl: o.congestion})
	if err != nil {
		return err
	}
	defer func() {
		closeErr := l.Close()
		if !used {
			closeErr = errors.Join(closeErr, forget())
		}
		if closeErr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", errLeftovers, closeErr))
		}
	}()
	rep := &report{
		Machine: describeMachine(), Started: began.UTC().Format(time.RFC3339),
		Congestion: o.congestion, Load: plan,
	}
	d := &demo{out: out, began: began, lab: l, report: rep}
	d.introduce()
	if err := d.rows(ctx, picked, caps); err != nil {
		return err
	}
	rep.Seconds = time.Since(began).Seconds()
	if err := writeReport(rep, o.json); err != nil {
		return err
	}
	d.explain(o.json)
	return nil
}

// inUse says that podweir keeps something on this machine already.
func inUse(p engine.Paths) bool {
	_, pins := os.Stat(p.Pins)
	_, run := os.Stat(p.Run)
	return pins == nil || run == nil
}

// forget removes what podweir keeps for the whole machine: programs, pins and probe results.
// It leaves the machine's CNI alone, which the demo has not touched.
func forget() error {
	root, err := os.MkdirTemp("", "podweir-demo")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	if out, err := exec.Command("bin/podweir", "uninstall", "--root", root).CombinedOutput(); err != nil {
		return fmt.Errorf("podweir uninstall: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// checkTools says what is missing and how to get it.
func checkTools() error {
	if os.Geteuid() != 0 {
		return errors.New("the demo makes network namespaces and BPF programs: run it as root")
	}
	var missing []string
	for _, tool := range []string{"iperf3", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing: %s; `make demo` installs them, or: apt-get install iperf3 iproute2",
			strings.Join(missing, ", "))
	}
	for _, plugin := range []string{"bin/podweir", "bin/podweir-cni", "bin/ref/ptp", "bin/ref/host-local", "bin/ref/bandwidth"} {
		if _, err := os.Stat(plugin); err != nil {
			return fmt.Errorf("%s is not built: run `make demo`, or `make build refplugins` first", plugin)
		}
	}
	return nil
}

// demo is a run in progress.
type demo struct {
	out    io.Writer
	began  time.Time
	lab    *lab.Lab
	report *report
}

// say prints a line of progress with the time since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "[%3.0f s] %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// rows measures every scenario at every cap.
func (d *demo) rows(ctx context.Context, picked []scenario, caps []uint64) error {
	b, err := newBench(ctx, d.lab, d.report.Congestion)
	if err != nil {
		return err
	}
	b.phase = func(name string) { fmt.Fprint(d.out, name) }
	networks := make([]*lab.Network, len(picked))
	memories := make([]*memory, len(picked))
	d.say("kernel memory: %d pods of each case", memoryPods)
	for i, s := range picked {
		if networks[i], err = d.lab.Network("case-"+s.key, s.chain...); err != nil {
			return err
		}
		if memories[i], err = d.memory(ctx, networks[i], &s, caps[0]); err != nil {
			return fmt.Errorf("(%s) %s: %w", s.key, s.title, err)
		}
	}
	for n, limit := range caps {
		for i, s := range picked {
			r := row{Case: s.key, Title: s.title, Memory: memories[i]}
			if s.shaped() {
				r.CapBitRate = limit
			} else if n > 0 {
				continue // without a cap there is one row
			}
			fmt.Fprintf(d.out, "[%3.0f s] (%s) %s, %s: ", time.Since(d.began).Seconds(),
				s.key, s.title, result.CapName(r.CapBitRate))
			if err := b.measure(ctx, networks[i], &s, &r); err != nil {
				return fmt.Errorf("(%s) %s, %s: %w", s.key, s.title, result.CapName(r.CapBitRate), err)
			}
			d.report.Rows = append(d.report.Rows, r)
			fmt.Fprintf(d.out, "\n        light p99 %s ms, kept connection p99 %s ms, on the wire %s out / %s in Mbit/s\n",
				result.Milli(r.Open.P99), result.Milli(r.Kept.P99), result.Mega(r.Egress.WireBitRate), result.Mega(r.Ingress.WireBitRate))
		}
	}
	return nil
}

// memory measures what a scenario's chained plugin costs the kernel per pod; nil if
// it has none.
func (d *demo) memory(ctx context.Context, network *lab.Network, s *scenario, limit uint64) (*memory, error) {
	if s.bandwidth == nil {
		return nil, nil
	}
	var out *memory
	for range memoryTries {
		m, err := network.ChainMemory(ctx, memoryPods, lab.PodOptions{Bandwidth: s.bandwidth(limit)})
		if err != nil {
			return nil, err
		}
		if out = newMemory(m, memoryPods); out.Plausible() {
			break
		}
	}
	return out, nil
}
