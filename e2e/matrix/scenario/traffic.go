// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/step"
)

// load is a load with its name and the pod's caps, in bits per second; 0 is none.
type load struct {
	what string
	workload.Load
	in, out uint64
	// strict leaves no time for busy processors: the worst second is as promised.
	strict bool
}

// promised is the worst second as a share of the cap, with the default burst.
const promised = 1.01

// err says whether a measurement keeps to the caps and uses them.
func (l *load) err(t workload.Traffic) error {
	return errors.Join(t.Err(l.in, l.out), l.aboveErr(t))
}

// aboveErr says whether it keeps to the caps.
func (l *load) aboveErr(t workload.Traffic) error {
	var errs []error
	for _, d := range t.Directions(l.in, l.out) {
		if worst := d.WorstSecond(); l.strict && worst > promised {
			errs = append(errs, fmt.Errorf("%s %d bits/s: a second had %.4f of the cap, %.2f is promised", d.Name, d.Bits, worst, promised))
		}
	}
	return errors.Join(errs...)
}

// limits holds a pod from before the install and one from after it to their caps:
// across nodes and on their node, TCP and datagrams, beside a pod without a limit.
// Loads that share neither pod nor peer run at the same time.
func limits(ctx context.Context, r *Run) {
	late := r.run(ctx, "late", 0, workload.Limits(capInText, capOutText))
	capped := func(what string, l workload.Load) load { return load{what, l, capIn, capOut, true} }
	control := func(udp bool, bits uint64) load {
		return load{what: "control pod beside them", Load: workload.Load{Pod: r.control, Peer: r.free, UDP: udp, Bits: bits}}
	}
	r.together(
		ctx, measured, control(false, controlOffered),
		capped("TCP from the other node", workload.Load{Pod: late, Peer: r.far}),
		capped("TCP on its node", workload.Load{Pod: r.early, Peer: r.near}),
	)
	r.together(
		ctx, datagrams, control(true, controlDatagrams),
		capped("UDP from the other node", workload.Load{Pod: r.early, Peer: r.far, UDP: true, Bits: datagramOffered}),
		capped("UDP on its node", workload.Load{Pod: late, Peer: r.near, UDP: true, Bits: datagramOffered}),
	)
}

// together measures at the same time and judges in order.
func (r *Run) together(ctx context.Context, length time.Duration, loads ...load) {
	traffic, errs := make([]workload.Traffic, len(loads)), make([]error, len(loads))
	var all sync.WaitGroup
	for i := range loads {
		all.Go(func() {
			if loads[i].in == 0 {
				traffic[i], errs[i] = loads[i].For(ctx, length)
			} else {
				traffic[i], errs[i] = r.measure(ctx, &loads[i], length)
			}
		})
	}
	all.Wait()
	for i := range loads {
		l := &loads[i]
		switch {
		case errs[i] != nil:
		case l.in == 0:
			least := min(traffic[i].In.BitsPerSec(), traffic[i].Out.BitsPerSec())
			r.note("%s: at least %s Mbit/s of %d offered", l.what, mbit(least), l.Bits/1_000_000)
			if least < float64(l.Bits)/4 {
				errs[i] = expect("the control pod has no limit", fmt.Errorf("%s Mbit/s", mbit(least)))
			}
		default:
			errs[i] = r.judge(l, traffic[i])
		}
	}
	step.OK(errors.Join(errs...))
}

// worstLight is how long 99 of 100 answers beside bulk may take: less than the
// heavy band is deep (50 ms), and more than a busy machine needs by itself.
const worstLight = 20 * time.Millisecond

// lightFlow asks questions beside bulk in both directions, and at the same time
// those of a pod without a limit: what the machine itself needs.
func lightFlow(ctx context.Context, r *Run) {
	step.Get(workload.Load{Pod: r.early, Peer: r.far}.While(ctx, r.askBoth))
}

// askBoth holds the answers of the pod that stays to those of the one without a limit.
func (r *Run) askBoth(ctx context.Context) error {
	light, control, err := r.answers(ctx)
	if err == nil && light.p99 > worstLight+2*control.p99 {
		err = expect(fmt.Sprintf("p99 at most %v and twice the control pod's", worstLight), fmt.Errorf("%v", light.p99))
	}
	return err
}

// noteAnswers asks as askBoth does, and expects nothing.
func (r *Run) noteAnswers(ctx context.Context) error {
	_, _, err := r.answers(ctx)
	if err != nil && strings.Contains(err.Error(), "i/o timeout") {
		r.note("beside bulk: no answer in 8 s")
		return nil
	}
	return err
}

// answers asks the pod that stays and the one without a limit at the same time.
func (r *Run) answers(ctx context.Context) (light, control answers, err error) {
	beside := make(chan error, 1)
	go func() {
		var err error
		control, err = ask(ctx, r.near, r.control)
		beside <- err
	}()
	light, err = ask(ctx, r.near, r.early)
	if err = errors.Join(err, <-beside); err == nil {
		r.note("beside bulk: p50 %v, p99 %v, longest %v; control pod at the same time: p99 %v", light.p50, light.p99, light.most, control.p99)
	}
	return light, control, err
}

// answers are the times of answers.
type answers struct{ p50, p99, most time.Duration }

// ask asks one pod from another for 3 s.
func ask(ctx context.Context, from, to *workload.Pod) (_ answers, err error) {
	defer step.End(&err)
	took := step.Get(from.Ask(ctx, to, 3*time.Second))
	of := func(percent int) time.Duration { return took[(len(took)-1)*percent/100].Round(time.Microsecond) }
	return answers{of(50), of(99), of(100)}, nil
}

// policyHolds lets one pod connect and no other, for a moment, where the CNI has a
// policy engine.
func policyHolds(ctx context.Context, r *Run) {
	if engine, ok := r.CNI.(cnis.Policy); ok {
		step.OK(engine.Restrict(ctx, r.Cluster, r.early, r.far))
		r.allows(ctx, r.early, []*workload.Pod{r.far}, []*workload.Pod{r.near, r.control})
		step.OK(engine.Lift(ctx, r.Cluster, r.early))
	}
}

// policyEnforced: one pod may connect, the other not; then nobody, then all.
func policyEnforced(ctx context.Context, r *Run) {
	engine := r.CNI.(cnis.Policy)
	step.OK(engine.Restrict(ctx, r.Cluster, r.early, r.far))
	r.allows(ctx, r.early, []*workload.Pod{r.far}, []*workload.Pod{r.near, r.control})
	r.limited(ctx, "under policy", workload.Load{Pod: r.early, Peer: r.far}, capIn, capOut)
}

// policyChanged turns the policy round while the pod is under load by a pod that
// stays allowed.
func policyChanged(ctx context.Context, r *Run) {
	engine := r.CNI.(cnis.Policy)
	r.underLoad(ctx, "while policy changed", func(ctx context.Context) {
		for _, friend := range []*workload.Pod{r.near, r.control} {
			step.OK(engine.Restrict(ctx, r.Cluster, r.early, r.far, friend))
			stranger := r.control
			if friend == r.control {
				stranger = r.near
			}
			r.allows(ctx, r.early, []*workload.Pod{friend}, []*workload.Pod{stranger})
		}
	})
	step.OK(engine.Lift(ctx, r.Cluster, r.early))
}

// allows waits until friends reach a server and strangers do not. All try at the
// same time: what a policy denies is known after seconds.
func (r *Run) allows(ctx context.Context, server *workload.Pod, friends, strangers []*workload.Pod) {
	eventually(ctx, "policy lets some connect and others not", func(ctx context.Context) {
		pods := slices.Concat(friends, strangers)
		errs := make([]error, len(pods))
		var all sync.WaitGroup
		for i, p := range pods {
			all.Go(func() {
				err := p.Reach(ctx, server)
				switch {
				case i < len(friends) && err != nil:
					errs[i] = fmt.Errorf("%s does not reach %s: %w", p.Name, server.Name, err)
				case i >= len(friends) && err == nil:
					errs[i] = fmt.Errorf("%s reaches %s", p.Name, server.Name)
				}
			})
		}
		all.Wait()
		step.OK(errors.Join(errs...))
	})
	r.note("%d allowed, %d denied", len(friends), len(strangers))
}

// annotationChanged changes the caps of a pod that runs, and back.
func annotationChanged(ctx context.Context, r *Run) {
	step.OK(r.early.Annotate(ctx, workload.Limits(otherInText, otherOutText)))
	r.capsOf(ctx, r.early, otherIn, otherOut)
	r.limited(ctx, "with other caps", workload.Load{Pod: r.early, Peer: r.far}, otherIn, otherOut)
	step.OK(r.early.Annotate(ctx, workload.Limits(capInText, capOutText)))
	r.capsOf(ctx, r.early, capIn, capOut)
}
