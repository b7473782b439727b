// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
)

// underLoad does something while the pod that stays is under load, and holds it
// to its caps meanwhile.
func (r *Run) underLoad(ctx context.Context, what string, f func(context.Context) error) error {
	t, err := workload.Load{Pod: r.early, Peer: r.far}.While(ctx, func(ctx context.Context) error {
		if err := workload.Wait(time.Second)(ctx); err != nil {
			return err
		}
		return errors.Join(f(ctx), workload.Wait(2*time.Second)(ctx))
	})
	if err != nil {
		return err
	}
	return r.judge(&load{what: what, in: capIn, out: capOut}, t)
}

// agentStopped makes a pod while the agent of its node hangs: what is limited
// then is limited by the plugin alone.
func agentStopped(ctx context.Context, r *Run) (err error) {
	node := r.Cluster.Members[0]
	if _, err := node.Exec(ctx, "pkill", "-STOP", "-x", "podweir"); err != nil {
		return err
	}
	defer func() {
		_, cont := node.Exec(context.WithoutCancel(ctx), "pkill", "-CONT", "-x", "podweir")
		err = errors.Join(err, cont)
	}()
	p, err := r.run(ctx, "unwatched", 0, workload.Limits(capInText, capOutText))
	if err != nil {
		return err
	}
	return r.limited(ctx, "the plugin alone", workload.Load{Pod: p, Peer: r.far}, capIn, capOut)
}

// agentKilled kills podweir's agent under load.
func agentKilled(ctx context.Context, r *Run) error {
	agents, err := r.Cluster.Agents(ctx)
	if err != nil {
		return err
	}
	node := r.Cluster.Members[0]
	restarts := func(ctx context.Context) (string, error) {
		return r.Cluster.Kubectl(ctx, "", "-n", cluster.Namespace, "get", "pod", agents[node.Name],
			"-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	}
	before, err := restarts(ctx)
	if err != nil {
		return err
	}
	return r.disturbed(ctx, func(ctx context.Context) error {
		if _, err := node.Exec(ctx, "pkill", "-KILL", "-x", "podweir"); err != nil {
			return err
		}
		err := eventually(ctx, func(ctx context.Context) error {
			if now, err := restarts(ctx); err != nil || now == before {
				return errors.Join(errors.New("the kubelet has not started it again"), err)
			}
			_, err := node.Fetch(ctx, "/readyz")
			return err
		})
		return expect("the agent is back", err)
	})
}

// cniAgentKilled kills the primary CNI's process under load; then pods start
// and are limited.
func cniAgentKilled(ctx context.Context, r *Run) error {
	agent := r.CNI.(cnis.Agent)
	if err := r.order(ctx, "before"); err != nil {
		return err
	}
	err := r.underLoad(ctx, "meanwhile", func(ctx context.Context) error {
		return agent.KillAgent(ctx, r.Cluster, r.Cluster.Members[0])
	})
	if err != nil {
		return err
	}
	if err := r.bornLimited(ctx, "orphan"); err != nil {
		return err
	}
	return r.order(ctx, "after")
}

// cniChanged upgrades the primary CNI, or gives it other settings, while a pod is under
// load, with a policy that is enforced afterwards.
func cniChanged(ctx context.Context, r *Run) error {
	for i, change := range r.CNI.(cnis.Changes).Changes() {
		began := time.Now()
		err := r.changed(ctx, change)
		if err == nil {
			err = r.bornLimited(ctx, fmt.Sprintf("changed%d", i))
		}
		if err == nil {
			err = doctor(ctx, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", change.What, err)
		}
		r.note("%s: %.0f s", change.What, time.Since(began).Seconds())
	}
	return nil
}

// changed makes one change. A pod that the policy denies asks all the time.
func (r *Run) changed(ctx context.Context, change cnis.Change) error {
	engine, policed := r.CNI.(cnis.Policy)
	holds := func() error {
		return r.allows(ctx, r.early, []*workload.Pod{r.far}, []*workload.Pod{r.near, r.control})
	}
	if policed {
		if err := engine.Restrict(ctx, r.Cluster, r.early, r.far); err != nil {
			return err
		}
	}
	if change.Denies {
		if err := holds(); err != nil {
			return err
		}
	}
	if err := r.order(ctx, "before: "+change.What); err != nil {
		return err
	}
	t, err := workload.Load{Pod: r.early, Peer: r.far}.While(ctx, func(ctx context.Context) error {
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
		err = eventually(ctx, func(ctx context.Context) error { return r.far.Reach(ctx, r.early) })
		return errors.Join(expect("pods reach one another again", err), workload.Wait(2*time.Second)(ctx))
	})
	if err != nil {
		return err
	}
	r.note("%s", (&load{what: change.What, in: capIn, out: capOut}).seen(t))
	for _, d := range t.Directions(capIn, capOut) {
		if err := d.Above(); err != nil {
			return expect("the limit is held", err)
		}
	}
	if !policed {
		return nil
	}
	if err := holds(); err != nil {
		return err
	}
	return errors.Join(r.order(ctx, "after it"), engine.Lift(ctx, r.Cluster, r.early))
}

// answered asks one pod from another until the context ends, and returns how many
// requests were answered, and how many there were.
func answered(ctx context.Context, from, to *workload.Pod) (n [2]int) {
	for ctx.Err() == nil {
		if from.Reach(ctx, to) == nil {
			n[0]++
		}
		n[1]++
	}
	return n
}

// bornLimited makes a pod and looks at its caps. It stays until podweir goes.
func (r *Run) bornLimited(ctx context.Context, name string) error {
	p, err := r.run(ctx, name, 0, workload.Limits(capInText, capOutText))
	if err != nil {
		return err
	}
	return r.capsOf(ctx, p, capIn, capOut)
}

// conflistRewritten lets the primary CNI write its file again, by a new name and
// in place, and makes pods behind each.
func conflistRewritten(ctx context.Context, r *Run) error {
	node := r.Cluster.Members[0]
	file := node.Path(r.CNI.Conflist())
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	was, err := os.Stat(file)
	if err != nil {
		return err
	}
	// A change that means nothing, and can be told.
	for i, write := range []func(string) error{
		func(t string) error { return node.WriteFile(r.CNI.Conflist(), t) },
		func(t string) error { return os.WriteFile(file, []byte(t), 0o600) },
	} {
		version := fmt.Sprintf("rewritten-%d", i)
		if err := write(strings.Replace(string(text), "{", fmt.Sprintf(`{"x-%s": true, `, version), 1)); err != nil {
			return err
		}
		name := fmt.Sprintf("rewritten%d", i)
		if err := r.bornLimited(ctx, name); err != nil {
			return err
		}
		if err := r.pluginCalled(ctx, node, name); err != nil {
			return expect("the runtime calls podweir's plugin behind the CNI's file", err)
		}
		if r.Row.Delivery != "chain" {
			continue
		}
		err := cluster.Eventually(ctx, 5*time.Second, func(context.Context) error { return r.chained(node, version) })
		if err != nil {
			return expect("podweir's chain follows the CNI's file", err)
		}
	}
	return errors.Join(node.WriteFile(r.CNI.Conflist(), string(text)), os.Chmod(file, was.Mode()))
}

// pluginCalled says whether a pod was attached by the plugin; the agent attaches those
// that the plugin was not called for.
func (r *Run) pluginCalled(ctx context.Context, node *cluster.Node, pod string) error {
	attached, err := r.attachments(ctx, node)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(attached, func(a attachment) bool { return a.Pod == "default/"+pod && a.By == "plugin" }) {
		return fmt.Errorf("attachments %+v", attached)
	}
	return nil
}

// attachment is a limited interface as `podweir status` has it.
type attachment struct {
	Pod, By   string
	Interface struct{ PodName, HostName string }
}

// attachments are those of a node.
func (r *Run) attachments(ctx context.Context, node *cluster.Node) ([]attachment, error) {
	// It ends with an error if any pod is not limited as it should be; then it has
	// written all the same.
	out, failed := r.Cluster.Podweir(ctx, node, "status", "-o", "json")
	var status struct{ Attachments []attachment }
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return nil, errors.Join(failed, err)
	}
	return status.Attachments, nil
}

// chained says whether podweir's conflist is of a version of the CNI's.
func (r *Run) chained(node *cluster.Node, version string) error {
	name, err := conflist.FileName(filepath.Base(r.CNI.Conflist()))
	if err != nil {
		return err
	}
	ours := filepath.Join(filepath.Dir(r.CNI.Conflist()), name)
	got, err := os.ReadFile(node.Path(ours))
	if err == nil && (!strings.Contains(string(got), version) || !strings.Contains(string(got), "podweir-cni")) {
		err = fmt.Errorf("%s is not the newest: %s", ours, got)
	}
	return err
}

// upgraded replaces every agent under load, by another tag and other settings.
func upgraded(ctx context.Context, r *Run) error {
	for _, n := range r.Cluster.Members {
		// The same image: what is tried is the change of agents.
		if _, err := n.Exec(ctx, "/node/components/ctr", "-n", "k8s.io", "images", "tag", "--force",
			"localhost/podweir/podweir:0.1.0", "localhost/podweir/podweir:0.1.0-next"); err != nil {
			return err
		}
	}
	before, err := r.Cluster.Agents(ctx)
	if err != nil {
		return err
	}
	err = r.disturbed(ctx, func(ctx context.Context) error {
		if err := r.upgrade(ctx, "image.tag=0.1.0-next", "logLevel=debug"); err != nil {
			return err
		}
		return agentsReady(ctx, r)
	})
	if err != nil {
		return err
	}
	after, err := r.Cluster.Agents(ctx)
	for node, name := range after {
		if name == before[node] {
			err = errors.Join(err, expect("other agents", fmt.Errorf("%s has %s as before", node, name)))
		}
	}
	return err
}

// nodeRestarted takes the second node's power. Its files stay: the conflist of
// podweir among them.
func nodeRestarted(ctx context.Context, r *Run) error {
	node := r.Cluster.Members[1]
	began := time.Now()
	if err := node.Restart(ctx); err != nil {
		return err
	}
	if err := r.CNI.Booted(ctx, node); err != nil {
		return err
	}
	err := eventually(ctx, func(ctx context.Context) error {
		_, err := node.Fetch(ctx, "/readyz")
		return err
	})
	if err != nil {
		return expect("the agent of the restarted node is ready", err)
	}
	if err := r.cniReady(ctx); err != nil {
		return err
	}
	// Its pods get another sandbox; the API tells of the old one for a while.
	err = eventually(ctx, func(ctx context.Context) error {
		q, err := workload.Ready(ctx, r.Cluster, r.remote.Name)
		if err == nil {
			*r.remote = *q
		}
		return err
	})
	if err != nil {
		return expect("pods of the restarted node run again", err)
	}
	if err := r.restart(ctx); err != nil {
		return err
	}
	r.note("pods again after %.0f s", time.Since(began).Seconds())
	if err := r.capsOf(ctx, r.remote, capIn, capOut); err != nil {
		return err
	}
	if err := r.limited(ctx, "a pod of the restarted node", workload.Load{Pod: r.remote, Peer: r.near}, capIn, capOut); err != nil {
		return err
	}
	if _, err := r.run(ctx, "reborn", 1, workload.Limits(capInText, capOutText)); err != nil {
		return err
	}
	return doctor(ctx, r)
}
