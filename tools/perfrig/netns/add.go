// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

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
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// crowds are how many pods come at once, and the names of their numbers.
var crowds = []struct {
	pods int
	name string
}{{atOnce, "add_at_once"}, {2 * atOnce, "add_at_once_100"}}

const (
	// addEdge is how many pods at either end flatness compares.
	addEdge = 20
	// atOnce is how many ADDs are started together.
	atOnce = 50
	// crowdTimes is how often each crowd comes in a sample.
	crowdTimes = 3
	// peaks is how many ADDs are weighed.
	peaks = 7
)

// add times ADD of the phase's plugin for pods that ptp has made: one at a
// time, all of which stay; then many at once; then the memory of the process.
func (r *run) add(ctx context.Context) {
	l := step.Get(lab.New(ctx, r.opts))
	defer step.Close(l.Close)
	calls := r.makePods(ctx, l, "one", r.cell.Workload.Pods)
	var took []float64
	for _, call := range calls {
		d, err := call.run(ctx, "ADD")
		if err != nil {
			step.OK(errors.Join(err, deleteAll(ctx, calls)))
		}
		took = append(took, millis(d))
	}
	all := stats.Summarise(took)
	r.set("add_p50_ms", all.Median)
	r.set("add_max_ms", all.Max)
	if len(took) >= 2*addEdge {
		first, last := stats.Summarise(took[:addEdge]), stats.Summarise(took[len(took)-addEdge:])
		r.set("add_last_by_first_ratio", last.Median/first.Median)
	}
	step.OK(deleteAll(ctx, calls))
	r.addAtOnce(ctx, l)
	r.addMemory(ctx, l)
}

// addAtOnce has crowds come, in turns, of pods that are made for each: on a device that had a
// clsact qdisc before, which no new pod's has, podweir lists all qdiscs of the node.
func (r *run) addAtOnce(ctx context.Context, l *lab.Lab) {
	took, whole := make([][]float64, len(crowds)), make([][]float64, len(crowds))
	for round := range crowdTimes {
		for n, c := range crowds {
			each, all, err := together(ctx, r.makePods(ctx, l, fmt.Sprintf("%d-%d", c.pods, round), c.pods))
			step.OK(err)
			for _, d := range each {
				took[n] = append(took[n], millis(d))
			}
			whole[n] = append(whole[n], millis(all))
		}
	}
	for n, c := range crowds {
		s := stats.Summarise(took[n])
		r.set(c.name+"_p50_ms", s.Median)
		r.set(c.name+"_max_ms", s.Max)
		r.set(c.name+"_whole_ms", stats.Summarise(whole[n]).Median)
	}
}

// together adds all at once and deletes them. It returns how long each took, and all of
// them together.
func together(ctx context.Context, calls []*invocation) (each []time.Duration, whole time.Duration, err error) {
	each, errs := make([]time.Duration, len(calls)), make([]error, len(calls))
	var wg sync.WaitGroup
	began := time.Now()
	for n, call := range calls {
		wg.Go(func() { each[n], errs[n] = call.run(ctx, "ADD") })
	}
	wg.Wait()
	whole = time.Since(began)
	if err = errors.Join(errors.Join(errs...), deleteAll(ctx, calls)); err != nil {
		err = fmt.Errorf("%d at once: %w", len(calls), err)
	}
	return each, whole, err
}

func (r *run) addMemory(ctx context.Context, l *lab.Lab) {
	calls := r.makePods(ctx, l, "weighed", peaks)
	var bytesOf []float64
	for _, call := range calls {
		peak, err := call.peakRSS(l.Dir())
		if err != nil {
			step.OK(errors.Join(err, deleteAll(ctx, calls)))
		}
		bytesOf = append(bytesOf, float64(peak))
	}
	r.set("add_rss_p50_bytes", stats.Summarise(bytesOf).Median)
	step.OK(deleteAll(ctx, calls))
}

// invocation is one call of a plugin for a pod that ptp has made.
type invocation struct {
	bin   string
	stdin []byte
	env   []string
	node  *lab.Netns
	pod   *lab.Pod
}

// makePods makes pods by ptp alone and an invocation of the phase's plugin for
// each.
func (r *run) makePods(ctx context.Context, l *lab.Lab, name string, n int) []*invocation {
	network := step.Get(l.Network(name))
	out := make([]*invocation, 0, n)
	for range n {
		out = append(out, r.newInvocation(l, step.Get(network.Pod(ctx, lab.PodOptions{}))))
	}
	return out
}

func (r *run) newInvocation(l *lab.Lab, pod *lab.Pod) *invocation {
	bw, chain := r.chain()
	if len(chain) != 1 {
		step.OK(fmt.Errorf("phase %s has no plugin to add", r.cell.Phase.Name))
	}
	const version = "1.1.0"
	conf := map[string]any{
		"cniVersion": version, "name": l.Name() + "-add",
		"prevResult":    step.Get(pod.Result.GetAsVersion(version)),
		"runtimeConfig": map[string]any{"bandwidth": bw},
	}
	maps.Copy(conf, chain[0])
	bin := r.plugin(fmt.Sprint(chain[0]["type"]))
	return &invocation{bin: bin, stdin: step.Get(json.Marshal(conf)), node: l.Node(), pod: pod, env: []string{
		"CNI_CONTAINERID=" + pod.ContainerID, "CNI_NETNS=" + pod.Netns.Path(),
		"CNI_IFNAME=" + pod.IfName, "CNI_PATH=" + filepath.Dir(bin), "PATH=" + os.Getenv("PATH"),
	}}
}

// plugin is the absolute path of a plugin, found as a runtime finds it.
func (r *run) plugin(name string) string {
	for _, dir := range r.opts.PluginDirs {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			return step.Get(filepath.Abs(file))
		}
	}
	step.OK(fmt.Errorf("no plugin %s in %v", name, r.opts.PluginDirs))
	return ""
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
	return took, i.shaped(err, command, &stdout, &stderr)
}

// shaped says how a call failed. A pod that starts unshaped would be quick.
func (i *invocation) shaped(err error, command string, stdout, stderr *bytes.Buffer) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s%s", filepath.Base(i.bin), command, err, stdout.Bytes(), stderr.Bytes())
	}
	if bytes.Contains(stderr.Bytes(), []byte("level=ERROR")) {
		return fmt.Errorf("%s %s: %s", filepath.Base(i.bin), command, stderr.Bytes())
	}
	return nil
}

// deleteAll runs DEL and removes the pods: what the reference plugin leaves on the node's
// device goes with it.
func deleteAll(ctx context.Context, calls []*invocation) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	var pods []*lab.Pod
	for _, c := range calls {
		_, err := c.run(ctx, "DEL")
		errs, pods = append(errs, err), append(pods, c.pod)
	}
	return errors.Join(append(errs, lab.DeletePods(ctx, pods))...)
}
