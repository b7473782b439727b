// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/podweir/podweir/e2e/lab"
)

const (
	addPods     = 100
	addAtOnce   = 50
	addCap      = 100_000_000
	addEdge     = 20 // pods at either end that flatness compares
	addBar      = 10 * time.Millisecond
	addTCXLink  = 16 * time.Millisecond
	addMaxDrift = 1.5
)

// contender is one chained plugin whose ADD is measured.
type contender struct {
	name  string
	bin   string
	entry lab.Entry
	// bar is what the median may be; 0 means that it is only reported.
	bar time.Duration
	// links is the number of TCX links that an ADD makes.
	links int
}

func contenders() []contender {
	return []contender{
		{"podweir auto", "bin/podweir-cni", lab.PodweirEntry(nil), addBar + addTCXLink, 1},
		{
			"podweir without TCX links", "bin/podweir-cni",
			lab.PodweirEntry(map[string]any{"ingressMode": "clsact-hostside"}), addBar, 0,
		},
		{"reference bandwidth", "bin/ref/bandwidth", lab.BandwidthEntry(), 0, 0},
	}
}

// invocation is one call of a plugin for a pod that ptp has made.
type invocation struct {
	bin   string
	stdin []byte
	env   []string
	node  *lab.Netns
}

func newInvocation(l *lab.Lab, c *contender, pod *lab.Pod) (*invocation, error) {
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": l.Name() + "-bench",
		"prevResult":    pod.Result,
		"runtimeConfig": map[string]any{"bandwidth": lab.KubeletBandwidth(addCap)},
	}
	maps.Copy(conf, c.entry)
	stdin, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(c.bin)
	if err != nil {
		return nil, err
	}
	return &invocation{bin: bin, stdin: stdin, node: l.Node(), env: []string{
		"CNI_CONTAINERID=" + pod.ContainerID, "CNI_NETNS=" + pod.Netns.Path(),
		"CNI_IFNAME=" + pod.IfName, "CNI_PATH=" + filepath.Dir(bin), "PATH=" + os.Getenv("PATH"),
	}}, nil
}

// run executes the plugin in the node's namespace and returns how long the
// whole process took.
func (i *invocation) run(ctx context.Context, command string) (time.Duration, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, i.bin)
	cmd.Env = append(slices.Clone(i.env), "CNI_COMMAND="+command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(i.stdin), &stdout, &stderr
	began := time.Now()
	if err := i.node.Do(cmd.Start); err != nil {
		return 0, err
	}
	err := cmd.Wait()
	took := time.Since(began)
	if err != nil {
		return took, fmt.Errorf("%s %s: %w: %s%s", filepath.Base(i.bin), command, err, stdout.Bytes(), stderr.Bytes())
	}
	// A pod that starts unshaped would be quick.
	if bytes.Contains(stderr.Bytes(), []byte("level=ERROR")) {
		return took, fmt.Errorf("%s %s: %s", filepath.Base(i.bin), command, stderr.Bytes())
	}
	return took, nil
}

// makePods makes pods by ptp alone and an invocation of the plugin for each.
func makePods(ctx context.Context, l *lab.Lab, name string, c *contender, n int) ([]*invocation, error) {
	network, err := l.Network(name)
	if err != nil {
		return nil, err
	}
	out := make([]*invocation, 0, n)
	for range n {
		pod, err := network.Pod(ctx, lab.PodOptions{})
		if err != nil {
			return nil, err
		}
		call, err := newInvocation(l, c, pod)
		if err != nil {
			return nil, err
		}
		out = append(out, call)
	}
	return out, nil
}

func benchAdd(ctx context.Context, rep *report) (err error) {
	l, err := lab.New(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	all := contenders()
	calls := make([][]*invocation, len(all))
	for i := range all {
		if calls[i], err = makePods(ctx, l, fmt.Sprintf("add%d", i), &all[i], addPods); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, deleteAll(ctx, calls[i])) }()
	}
	took := make([][]time.Duration, len(all))
	for pod := range addPods {
		for turn := range all {
			i := (pod + turn) % len(all)
			d, err := calls[i][pod].run(ctx, "ADD")
			if err != nil {
				return err
			}
			took[i] = append(took[i], d)
		}
	}
	t := rep.table("ADD, one at a time",
		fmt.Sprintf("Whole process, both directions, %d pods each in turns, all of which stay. Milliseconds.", addPods),
		"plugin", "TCX links", "min", "median", "p90", "max", "median of the first 20", "of the last 20")
	for i := range all {
		reportAdd(rep, t, &all[i], took[i])
	}
	return benchAtOnce(ctx, rep, l, all)
}

func reportAdd(rep *report, t *table, c *contender, took []time.Duration) {
	first, last := median(took[:addEdge]), median(took[len(took)-addEdge:])
	sorted := slices.Sorted(slices.Values(took))
	mid := lab.Quantile(sorted, 0.5)
	t.row(c.name, fmt.Sprint(c.links), millis(sorted[0]), millis(mid), millis(lab.Quantile(sorted, 0.9)),
		millis(sorted[len(sorted)-1]), millis(first), millis(last))
	if c.bar == 0 {
		return
	}
	rep.bar(mid <= c.bar, "ADD, median, "+c.name, millis(mid)+" ms", "at most "+millis(c.bar)+" ms")
	if c.links == 0 {
		drift := float64(last) / float64(first)
		rep.bar(drift <= addMaxDrift, "ADD is flat over 100 pods, "+c.name,
			fmt.Sprintf("last 20 / first 20 = %.2f", drift), fmt.Sprintf("at most %.1f", addMaxDrift))
	}
}

// benchAtOnce starts 50 ADDs together.
func benchAtOnce(ctx context.Context, rep *report, l *lab.Lab, all []contender) (err error) {
	t := rep.table("ADD, 50 at once", "Milliseconds; reported, no bar.",
		"plugin", "median", "max", "all done after")
	for i := range all {
		calls, err := makePods(ctx, l, fmt.Sprintf("once%d", i), &all[i], addAtOnce)
		if err != nil {
			return err
		}
		took := make([]time.Duration, addAtOnce)
		errs := make([]error, addAtOnce)
		var wg sync.WaitGroup
		began := time.Now()
		for n, call := range calls {
			wg.Go(func() { took[n], errs[n] = call.run(ctx, "ADD") })
		}
		wg.Wait()
		whole := time.Since(began)
		if err := errors.Join(errors.Join(errs...), deleteAll(ctx, calls)); err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		slices.Sort(took)
		t.row(all[i].name, millis(lab.Quantile(took, 0.5)), millis(took[len(took)-1]), millis(whole))
	}
	return nil
}

func deleteAll(ctx context.Context, calls []*invocation) error {
	var errs []error
	for _, c := range calls {
		_, err := c.run(context.WithoutCancel(ctx), "DEL")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func median(took []time.Duration) time.Duration {
	return lab.Quantile(slices.Sorted(slices.Values(took)), 0.5)
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }
