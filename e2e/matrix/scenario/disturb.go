// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/step"
)

// underLoad does something while the pod that stays is under load, and holds it
// to its caps meanwhile.
func (r *Run) underLoad(ctx context.Context, what string, f func(context.Context)) {
	t := step.Get(workload.Load{Pod: r.early, Peer: r.far}.While(ctx, func(ctx context.Context) error {
		return step.Run(func() {
			step.OK(workload.Wait(time.Second)(ctx))
			f(ctx)
			step.OK(workload.Wait(2 * time.Second)(ctx))
		})
	}))
	step.OK(r.judge(&load{what: what, in: capIn, out: capOut}, t))
}

// agentStopped makes a pod while the agent of its node hangs: what is limited
// then is limited by the plugin alone.
func agentStopped(ctx context.Context, r *Run) {
	node := r.Cluster.Members[0]
	step.Get(node.Exec(ctx, "pkill", "-STOP", "-x", "podweir"))
	defer step.Close(func() error {
		return step.Err(node.Exec(context.WithoutCancel(ctx), "pkill", "-CONT", "-x", "podweir"))
	})
	p := r.run(ctx, "unwatched", 0, workload.Limits(capInText, capOutText))
	r.limited(ctx, "the plugin alone", workload.Load{Pod: p, Peer: r.far}, capIn, capOut)
}

// agentKilled kills podweir's agent under load.
func agentKilled(ctx context.Context, r *Run) {
	agents := step.Get(r.Cluster.Agents(ctx))
	node := r.Cluster.Members[0]
	restarts := func(ctx context.Context) (string, error) {
		return r.Cluster.Kubectl(ctx, "", "-n", cluster.Namespace, "get", "pod", agents[node.Name],
			"-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	}
	before := step.Get(restarts(ctx))
	r.disturbed(ctx, func(ctx context.Context) {
		step.Get(node.Exec(ctx, "pkill", "-KILL", "-x", "podweir"))
		eventually(ctx, "the agent is back", func(ctx context.Context) {
			if now, err := restarts(ctx); err != nil || now == before {
				step.OK(errors.Join(errors.New("the kubelet has not started it again"), err))
			}
			step.Get(node.Fetch(ctx, "/readyz"))
		})
	})
}

// cniAgentKilled kills the primary CNI's process under load; then pods start
// and are limited.
func cniAgentKilled(ctx context.Context, r *Run) {
	agent := r.CNI.(cnis.Agent)
	r.order(ctx, "before")
	r.underLoad(ctx, "meanwhile", func(ctx context.Context) {
		step.OK(agent.KillAgent(ctx, r.Cluster, r.Cluster.Members[0]))
	})
	r.bornLimited(ctx, "orphan")
	r.order(ctx, "after")
}

// cniChanged upgrades the primary CNI, or gives it other settings, while a pod is under
// load, with a policy that is enforced afterwards.
func cniChanged(ctx context.Context, r *Run) {
	for i, change := range r.CNI.(cnis.Changes).Changes() {
		began := time.Now()
		err := step.Run(func() {
			r.changed(ctx, change)
			r.bornLimited(ctx, fmt.Sprintf("changed%d", i))
			doctor(ctx, r)
		})
		step.Say(err, "%s", change.What)
		r.note("%s: %.0f s", change.What, time.Since(began).Seconds())
	}
}

// changed makes one change. A pod that the policy denies asks all the time.
func (r *Run) changed(ctx context.Context, change cnis.Change) {
	engine, policed := r.CNI.(cnis.Policy)
	holds := func() {
		r.allows(ctx, r.early, []*workload.Pod{r.far}, []*workload.Pod{r.near, r.control})
	}
	if policed {
		step.OK(engine.Restrict(ctx, r.Cluster, r.early, r.far))
	}
	if change.Denies {
		holds()
	}
	r.order(ctx, "before: "+change.What)
	t := step.Get(workload.Load{Pod: r.early, Peer: r.far}.While(ctx, func(ctx context.Context) error {
		asking, stop := context.WithCancel(ctx)
		asked := make(chan [2]int, 1)
		go func() { asked <- answered(asking, r.near, r.early) }()
		err := change.Do(ctx)
		stop()
		got := <-asked
		if policed {
			r.note("%d of %d denied requests answered meanwhile", got[0], got[1])
		}
		if change.Denies && got[0] > 0 {
			err = errors.Join(err, expect("no denied request is answered", fmt.Errorf("%d were", got[0])))
		}
		if err != nil {
			return err
		}
		// A CNI may take the network from pods for a while.
		err = step.Run(func() {
			eventually(ctx, "pods reach one another again", func(ctx context.Context) { step.OK(r.far.Reach(ctx, r.early)) })
		})
		return errors.Join(err, workload.Wait(2*time.Second)(ctx))
	}))
	r.note("%s", (&load{what: change.What, in: capIn, out: capOut}).seen(t))
	for _, d := range t.Directions(capIn, capOut) {
		step.OK(expect("the limit is held", d.Above()))
	}
	if policed {
		holds()
		r.order(ctx, "after it")
		step.OK(engine.Lift(ctx, r.Cluster, r.early))
	}
}

// answered asks one pod from another until the context ends, and returns how many
// requests were answered, and how many there were.
func answered(ctx context.Context, from, to *workload.Pod) (n [2]int) {
	for ctx.Err() == nil {
		if from.Reach(ctx, to) == nil {
			n[0]++
		}
		n[1]++
		_ = workload.Wait(200 * time.Millisecond)(ctx)
	}
	return n
}

// bornLimited makes a pod and looks at its caps. It stays until podweir goes.
func (r *Run) bornLimited(ctx context.Context, name string) {
	p := r.run(ctx, name, 0, workload.Limits(capInText, capOutText))
	r.capsOf(ctx, p, capIn, capOut)
}

// conflistRewritten lets the primary CNI write its file again, by a new name and
// in place, and makes pods behind each.
func conflistRewritten(ctx context.Context, r *Run) {
	node := r.Cluster.Members[0]
	file := node.Path(r.CNI.Conflist())
	text := step.Get(os.ReadFile(file))
	was := step.Get(os.Stat(file))
	// A change that means nothing, and can be told.
	for i, write := range []func(string) error{
		func(t string) error { return node.WriteFile(r.CNI.Conflist(), t) },
		func(t string) error { return os.WriteFile(file, []byte(t), 0o600) },
	} {
		version := fmt.Sprintf("rewritten-%d", i)
		step.OK(write(strings.Replace(string(text), "{", fmt.Sprintf(`{"x-%s": true, `, version), 1)))
		name := fmt.Sprintf("rewritten%d", i)
		r.bornLimited(ctx, name)
		step.OK(expect("the runtime calls podweir's plugin behind the CNI's file", r.pluginCalled(ctx, node, name)))
		if r.Row.Delivery != "chain" {
			continue
		}
		soon(ctx, 5*time.Second, "podweir's chain follows the CNI's file", func(context.Context) { r.chained(node, version) })
	}
	step.OK(errors.Join(node.WriteFile(r.CNI.Conflist(), string(text)), os.Chmod(file, was.Mode())))
}

// pluginCalled says whether a pod was attached by the plugin; the agent attaches those
// that the plugin was not called for.
func (r *Run) pluginCalled(ctx context.Context, node *cluster.Node, pod string) error {
	a, err := r.Cluster.Attachment(ctx, node, pod)
	if err == nil && (a == nil || a.By != "plugin") {
		err = fmt.Errorf("attachment %+v", a)
	}
	return err
}

// chained fails unless podweir's conflist is of a version of the CNI's.
func (r *Run) chained(node *cluster.Node, version string) {
	name := step.Get(conflist.FileName(filepath.Base(r.CNI.Conflist())))
	ours := filepath.Join(filepath.Dir(r.CNI.Conflist()), name)
	got := string(step.Get(os.ReadFile(node.Path(ours))))
	if !strings.Contains(got, version) || !strings.Contains(got, "podweir-cni") {
		step.OK(fmt.Errorf("%s is not the newest: %s", ours, got))
	}
}

// upgraded replaces every agent under load, by another tag and other settings.
func upgraded(ctx context.Context, r *Run) {
	for _, n := range r.Cluster.Members {
		// The same image: what is tried is the change of agents.
		step.Get(n.Exec(ctx, "/node/components/ctr", "-n", "k8s.io", "images", "tag", "--force",
			"localhost/podweir/podweir:0.1.0", "localhost/podweir/podweir:0.1.0-next"))
	}
	before := step.Get(r.Cluster.Agents(ctx))
	r.disturbed(ctx, func(ctx context.Context) {
		r.upgrade(ctx, "image.tag=0.1.0-next", "logLevel=debug")
		agentsReady(ctx, r)
	})
	after, err := r.Cluster.Agents(ctx)
	for node, name := range after {
		if name == before[node] {
			err = errors.Join(err, expect("other agents", fmt.Errorf("%s has %s as before", node, name)))
		}
	}
	step.OK(err)
}

// nodeRestarted takes the second node's power. Its files stay: the conflist of
// podweir among them.
func nodeRestarted(ctx context.Context, r *Run) {
	node := r.Cluster.Members[1]
	began := time.Now()
	step.OK(node.Restart(ctx))
	step.OK(r.CNI.Booted(ctx, node))
	eventually(ctx, "the agent of the restarted node is ready", func(ctx context.Context) { step.Get(node.Fetch(ctx, "/readyz")) })
	r.cniReady(ctx)
	// Its pods get another sandbox; the API tells of the old one for a while.
	eventually(ctx, "pods of the restarted node run again", func(ctx context.Context) {
		*r.remote = *step.Get(workload.Ready(ctx, r.Cluster, r.remote.Name))
	})
	r.restart(ctx)
	r.note("pods again after %.0f s", time.Since(began).Seconds())
	r.capsOf(ctx, r.remote, capIn, capOut)
	r.limited(ctx, "a pod of the restarted node", workload.Load{Pod: r.remote, Peer: r.near}, capIn, capOut)
	r.run(ctx, "reborn", 1, workload.Limits(capInText, capOutText))
	doctor(ctx, r)
}
