// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/step"
)

// Beside a CNI that enforces the standard annotations, too, pods have two limits unless
// the operator chooses one.

const (
	// twoShapers is the doctor's check of pods with two limits.
	twoShapers = "PW403"
	// noShaper marks pods that each of two shapers leaves to the other.
	noShaper = "PW409"
	// endless is the rate from which on a limit holds nothing back: that of no pod is as
	// high.
	endless = 400_000_000_000
	// changing is how long the endpoint of a pod is changed under load, and between two
	// changes is a pause.
	changing, betweenChanges = 8 * time.Second, 250 * time.Millisecond
)

// ownLimits waits until the CNI's own limits of a pod are as they should be.
func (r *Run) ownLimits(ctx context.Context, p *workload.Pod, want string, fits func(in, out uint64) bool) {
	soon(ctx, 20*time.Second, fmt.Sprintf("the CNI's own limits of %s: %s", p.Name, want), func(ctx context.Context) {
		in, out, err := r.CNI.(cnis.Shaper).OwnLimits(ctx, p)
		step.OK(err)
		if !fits(in, out) {
			step.OK(fmt.Errorf("%d in and %d out", in, out))
		}
	})
}

func (r *Run) liftedFrom(ctx context.Context, p *workload.Pod) {
	r.ownLimits(ctx, p, "none that holds anything back", func(in, out uint64) bool { return in > endless && out > endless })
}

// ownRates are annotations that only podweir reads.
func ownRates(ingress, egress string) map[string]string {
	return map[string]string{"podweir.io/ingress-rate": ingress, "podweir.io/egress-rate": egress}
}

// ownLimitsLifted: a pod from before has the CNI's limit in front of podweir's until its
// next change, which the doctor says; pods from after, and those with podweir's own
// annotations, never have it.
func ownLimitsLifted(ctx context.Context, r *Run) {
	found := step.Get(r.findings(ctx, r.Cluster.Members[0]))
	if found[twoShapers] == "" {
		step.OK(expect("the doctor says that pods from before have two limits ("+twoShapers+")", fmt.Errorf("findings %v", found)))
	}
	for _, p := range []*workload.Pod{r.early, r.remote} {
		step.Get(r.Cluster.Kubectl(ctx, "", "label", "--overwrite", "pod", p.Name, "changed=once"))
		r.liftedFrom(ctx, p)
	}
	lifted := r.run(ctx, "lifted", 0, workload.Limits(capInText, capOutText))
	r.liftedFrom(ctx, lifted)
	own := r.run(ctx, "own", 0, ownRates(capInText, capOutText))
	r.ownLimits(ctx, own, "none", func(in, out uint64) bool { return in == 0 && out == 0 })
	r.together(
		ctx, measured,
		load{"standard annotations", workload.Load{Pod: lifted, Peer: r.far}, capIn, capOut, true},
		load{"podweir's annotations", workload.Load{Pod: own, Peer: r.near}, capIn, capOut, true},
	)
}

// endpointChanged changes a pod's labels again and again in a flood, and kills the CNI's
// agent meanwhile: each time that agent looks at the queues of the pod's host side. The
// limit holds, small requests do not wait, and podweir has nothing to mend.
func endpointChanged(ctx context.Context, r *Run) {
	before := step.Get(r.mended(ctx))
	for _, l := range []load{
		{"TCP while labels change", workload.Load{Pod: r.early, Peer: r.far}, capIn, capOut, true},
		{"datagrams while labels change", workload.Load{Pod: r.early, Peer: r.far, UDP: true, Bits: datagramOffered}, capIn, capOut, true},
	} {
		t := step.Get(l.While(ctx, func(ctx context.Context) error {
			light := make(chan error, 1)
			go func() { light <- r.askBoth(ctx) }()
			changed := step.Run(func() { r.changeLabels(ctx) })
			return errors.Join(changed, <-light, workload.Wait(time.Second)(ctx))
		}))
		r.note("%s", l.seen(t))
		step.OK(expect(l.what+": the limit is held", l.aboveErr(t)))
	}
	after, err := r.mended(ctx)
	if err == nil && after > before+1 {
		err = expect("podweir mends at most once what the CNI's agent does", fmt.Errorf("%.0f times", after-before))
	}
	r.note("mended %.0f times", after-before)
	step.OK(err)
}

// changeLabels changes the labels of a pod, and kills the CNI's agent on its node on the way.
func (r *Run) changeLabels(ctx context.Context) {
	const killAt = 4
	killed := make(chan error, 1)
	changes := 0
	for end := time.Now().Add(changing); changes <= killAt || time.Now().Before(end); changes++ {
		step.Get(r.Cluster.Kubectl(ctx, "", "label", "--overwrite", "pod", r.early.Name, fmt.Sprintf("changed=n%d", changes)))
		if changes == killAt {
			go func() { killed <- r.CNI.(cnis.Agent).KillAgent(ctx, r.Cluster, r.early.Node) }()
		}
		step.OK(workload.Wait(betweenChanges)(ctx))
	}
	r.note("%d changes", changes)
	step.OK(<-killed)
}

// mended is how often the agent of the first node put something back.
func (r *Run) mended(ctx context.Context) (times float64, err error) {
	page, err := r.Cluster.Members[0].Fetch(ctx, "/metrics")
	return metric(page, "podweir_reconcile_duration_seconds_count", `outcome="mended"`), err
}

// leftToTheCNI has podweir leave the standard annotations to the CNI, and takes them back.
func leftToTheCNI(ctx context.Context, r *Run) {
	shaper := r.CNI.(cnis.Shaper).Shaper()
	r.upgrade(ctx, "defaults.shaper="+shaper, "liftCalicoLimits.enabled=false")
	agentsReady(ctx, r)
	left := r.run(ctx, "left", 0, workload.Limits(capInText, capOutText))
	r.ownLimits(ctx, left, "those of the pod", func(in, out uint64) bool { return in == capIn && out == capOut })
	// Overridden in one direction, as a user does by hand who misses the other.
	limits := workload.Limits(capInText, capOutText)
	limits["qos.projectcalico.org/egressBandwidth"] = "1P"
	half := r.run(ctx, "half", 0, limits)
	r.ownLimits(ctx, half, "one of ingress alone", func(in, out uint64) bool { return in == capIn && out > endless })
	own := r.run(ctx, "own2", 0, ownRates(capInText, capOutText))
	r.capsOf(ctx, left, 0, 0)
	r.capsOf(ctx, own, capIn, capOut)
	r.limited(ctx, "podweir's annotations", workload.Load{Pod: own, Peer: r.far}, capIn, capOut)
	// The pod from before has both of Calico's numbers overridden, so that nobody limits it.
	unlimited := []string{r.early.Name + " egress", r.early.Name + " ingress", half.Name + " egress"}
	soon(ctx, 20*time.Second, fmt.Sprintf("the doctor says that nobody limits %v (%s)", unlimited, noShaper), func(ctx context.Context) {
		found := step.Get(r.findings(ctx, r.Cluster.Members[0]))
		for _, pod := range unlimited {
			if !strings.Contains(found[noShaper], pod) {
				step.OK(fmt.Errorf("no %q in findings %v", pod, found))
			}
		}
		for _, limited := range []string{half.Name + " ingress", left.Name + " ", own.Name + " "} {
			if strings.Contains(found[noShaper], "/"+limited) {
				step.OK(fmt.Errorf("%q in findings %v", limited, found))
			}
		}
	})
	// Otherwise they have two limits afterwards.
	step.OK(errors.Join(workload.Delete(ctx, r.Cluster, left.Name), workload.Delete(ctx, r.Cluster, half.Name)))
	r.upgrade(ctx)
	agentsReady(ctx, r)
	r.capsOf(ctx, r.early, capIn, capOut)
}
