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
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"golang.org/x/sync/errgroup"

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
	took, _ := added(ctx, r.makePods(ctx, l, "one", r.cell.Workload.Pods), 1)
	all := stats.Summarise(took)
	r.set("add_p50_ms", all.Median)
	r.set("add_max_ms", all.Max)
	if len(took) >= 2*addEdge {
		first, last := stats.Summarise(took[:addEdge]), stats.Summarise(took[len(took)-addEdge:])
		r.set("add_last_by_first_ratio", last.Median/first.Median)
	}
	r.addAtOnce(ctx, l)
	r.addMemory(ctx, l)
}

// addAtOnce has crowds come, in turns, of pods that are made for each: on a device that had a
// clsact qdisc before, which no new pod's has, podweir lists all qdiscs of the node.
func (r *run) addAtOnce(ctx context.Context, l *lab.Lab) {
	took, whole := map[string][]float64{}, map[string][]float64{}
	for round := range crowdTimes {
		for _, c := range crowds {
			each, all := added(ctx, r.makePods(ctx, l, fmt.Sprintf("%d-%d", c.pods, round), c.pods), c.pods)
			took[c.name], whole[c.name] = append(took[c.name], each...), append(whole[c.name], all)
		}
	}
	for _, c := range crowds {
		s := stats.Summarise(took[c.name])
		r.set(c.name+"_p50_ms", s.Median)
		r.set(c.name+"_max_ms", s.Max)
		r.set(c.name+"_whole_ms", stats.Summarise(whole[c.name]).Median)
	}
}

// added adds pods, so many at once, and deletes them. It returns how long each took, and all
// of them together, in milliseconds.
func added(ctx context.Context, calls []*invocation, atOnce int) (each []float64, whole float64) {
	defer step.Close(func() error { return deleteAll(ctx, calls) })
	each = make([]float64, len(calls))
	var all errgroup.Group
	all.SetLimit(atOnce)
	began := time.Now()
	for n, call := range calls {
		all.Go(func() error {
			took, err := call.run(ctx, "ADD")
			each[n] = millis(took)
			return err
		})
	}
	step.OK(all.Wait())
	return each, millis(time.Since(began))
}

func (r *run) addMemory(ctx context.Context, l *lab.Lab) {
	calls := r.makePods(ctx, l, "weighed", peaks)
	defer step.Close(func() error { return deleteAll(ctx, calls) })
	var bytesOf []float64
	for _, call := range calls {
		bytesOf = append(bytesOf, call.peakRSS(l.Dir()))
	}
	r.set("add_rss_p50_bytes", stats.Summarise(bytesOf).Median)
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
	bin := step.Get(filepath.Abs(step.Get(invoke.FindInPath(fmt.Sprint(chain[0]["type"]), r.opts.PluginDirs))))
	return &invocation{bin: bin, stdin: step.Get(json.Marshal(conf)), node: l.Node(), pod: pod, env: []string{
		"CNI_CONTAINERID=" + pod.ContainerID, "CNI_NETNS=" + pod.Netns.Path(),
		"CNI_IFNAME=" + pod.IfName, "CNI_PATH=" + filepath.Dir(bin), "PATH=" + os.Getenv("PATH"),
	}}
}

// run executes the plugin in the node's namespace and returns how long the
// whole process took. A pod that starts unshaped would be quick: it is an error.
func (i *invocation) run(ctx context.Context, command string) (took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, i.bin)
	cmd.Env, cmd.Stdin = append(slices.Clone(i.env), "CNI_COMMAND="+command), bytes.NewReader(i.stdin)
	var out []byte
	began := time.Now()
	err = i.node.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	took = time.Since(began)
	if err == nil && bytes.Contains(out, []byte("level=ERROR")) {
		err = errors.New("the pod is not shaped")
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(i.bin), command, err, out)
	}
	return took, err
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
