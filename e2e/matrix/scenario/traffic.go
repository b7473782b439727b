// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
)

// limits holds a pod from after the install to its caps: across nodes and on
// its node, TCP and datagrams, beside a pod without a limit.
func limits(ctx context.Context, r *Run) error {
	late, err := r.run(ctx, "late", 0, workload.Limits(capInText, capOutText))
	if err != nil {
		return err
	}
	beside := make(chan error, 1)
	go func() {
		t, err := workload.Load{Pod: r.control, Peer: r.near, Bits: controlOffered}.For(ctx, measured)
		if err == nil {
			least := min(t.In.BitsPerSec(), t.Out.BitsPerSec())
			r.note("control pod beside it: at least %s Mbit/s of %d offered", mbit(least), controlOffered/1_000_000)
			if least < controlOffered/4 {
				err = expect("the control pod has no limit", fmt.Errorf("%s Mbit/s", mbit(least)))
			}
		}
		beside <- err
	}()
	err = r.limited(ctx, "TCP from the other node", workload.Load{Pod: late, Peer: r.far}, capIn, capOut)
	if err := errors.Join(err, <-beside); err != nil {
		return err
	}
	for _, l := range []struct {
		what string
		load workload.Load
	}{
		{"TCP on its node", workload.Load{Pod: late, Peer: r.near}},
		{"UDP from the other node", workload.Load{Pod: late, Peer: r.far, UDP: true, Bits: datagramOffered}},
		{"UDP on its node", workload.Load{Pod: late, Peer: r.near, UDP: true, Bits: datagramOffered}},
	} {
		if err := r.limited(ctx, l.what, l.load, capIn, capOut); err != nil {
			return err
		}
	}
	return nil
}

// worstLight is how long 99 of 100 answers beside bulk may take: less than the
// heavy band is deep (50 ms), and more than a busy machine needs by itself.
const worstLight = 20 * time.Millisecond

// lightFlow asks questions beside bulk in both directions.
func lightFlow(ctx context.Context, r *Run) error {
	ask := func(ctx context.Context, p *workload.Pod) (p50, p99, most time.Duration, err error) {
		out, err := r.near.Work(ctx, "ask", p.IP.String(), "3s")
		if err != nil {
			return 0, 0, 0, err
		}
		var us [3]int64
		_, err = fmt.Sscan(out, &us[0], &us[1], &us[2])
		micro := func(i int) time.Duration { return time.Duration(us[i]) * time.Microsecond }
		return micro(0), micro(1), micro(2), err
	}
	_, idle, _, err := ask(ctx, r.control)
	if err != nil {
		return err
	}
	var p99 time.Duration
	_, err = workload.Load{Pod: r.early, Peer: r.far}.While(ctx, func(ctx context.Context) error {
		p50, beside, most, err := ask(ctx, r.early)
		p99 = beside
		r.note("beside bulk: p50 %v, p99 %v, longest %v; control pod, idle: p99 %v", p50, p99, most, idle)
		return err
	})
	if err != nil {
		return err
	}
	if p99 > worstLight+2*idle {
		return expect(fmt.Sprintf("p99 at most %v and twice the control pod's", worstLight), fmt.Errorf("%v", p99))
	}
	return nil
}

// policyEnforced: one pod may connect, the other not; then nobody, then all.
func policyEnforced(ctx context.Context, r *Run) error {
	engine := r.CNI.(cnis.Policy)
	if err := engine.Restrict(ctx, r.Cluster, r.early, r.far); err != nil {
		return err
	}
	if err := r.allows(ctx, r.early, []*workload.Pod{r.far}, []*workload.Pod{r.near, r.control}); err != nil {
		return err
	}
	return r.limited(ctx, "under policy", workload.Load{Pod: r.early, Peer: r.far}, capIn, capOut)
}

// policyChanged turns the policy round while the pod is under load by a pod that
// stays allowed.
func policyChanged(ctx context.Context, r *Run) error {
	engine := r.CNI.(cnis.Policy)
	t, err := workload.Load{Pod: r.early, Peer: r.far}.While(ctx, func(ctx context.Context) error {
		for _, friend := range []*workload.Pod{r.near, r.control} {
			if err := engine.Restrict(ctx, r.Cluster, r.early, r.far, friend); err != nil {
				return err
			}
			stranger := r.control
			if friend == r.control {
				stranger = r.near
			}
			if err := r.allows(ctx, r.early, []*workload.Pod{friend}, []*workload.Pod{stranger}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.judge("while policy changed", t, capIn, capOut); err != nil {
		return err
	}
	return engine.Lift(ctx, r.Cluster, r.early)
}

// allows waits until friends reach a server and strangers do not.
func (r *Run) allows(ctx context.Context, server *workload.Pod, friends, strangers []*workload.Pod) error {
	err := eventually(ctx, func(ctx context.Context) error {
		for _, p := range strangers {
			if err := p.Reach(ctx, server); err == nil {
				return fmt.Errorf("%s reaches %s", p.Name, server.Name)
			}
		}
		for _, p := range friends {
			if err := p.Reach(ctx, server); err != nil {
				return fmt.Errorf("%s does not reach %s: %w", p.Name, server.Name, err)
			}
		}
		return nil
	})
	if err == nil {
		r.note("%d allowed, %d denied", len(friends), len(strangers))
	}
	return expect("policy lets some connect and others not", err)
}

// annotationChanged changes the caps of a pod that runs, and back.
func annotationChanged(ctx context.Context, r *Run) error {
	if err := r.early.Annotate(ctx, workload.Limits(otherInText, otherOutText)); err != nil {
		return err
	}
	if err := r.capsOf(ctx, r.early, otherIn, otherOut); err != nil {
		return err
	}
	if err := r.limited(ctx, "with other caps", workload.Load{Pod: r.early, Peer: r.far}, otherIn, otherOut); err != nil {
		return err
	}
	if err := r.early.Annotate(ctx, workload.Limits(capInText, capOutText)); err != nil {
		return err
	}
	return r.capsOf(ctx, r.early, capIn, capOut)
}
