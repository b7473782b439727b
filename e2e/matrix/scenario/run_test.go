// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestWithinEndsAStepAtItsLimit(t *testing.T) {
	err := within(t.Context(), 10*time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	must.Fail(t, "within()", err, "not done after 10ms")
}

// TestARowEndsAtAStepThatHangs has a step that does not obey the end of the row's time.
func TestARowEndsAtAStepThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("the row's time is over"))
		defer cancel()
		released := make(chan struct{})
		defer close(released)
		r := &Run{Row: &row.Row{Name: "stuck"}, Cluster: &cluster.Cluster{}, Say: t.Logf}
		steps, err := r.All(ctx, []Step{
			{"first", time.Hour, nil, func(context.Context, *Run) {}},
			{"hangs", time.Hour, nil, func(context.Context, *Run) { <-released }},
			{"never", time.Hour, nil, func(context.Context, *Run) { step.OK(errors.New("it runs")) }},
		})
		must.Fail(t, "All()", err, `row stuck, step "hangs"`, "the row's time is over", "it still hangs", "last words")
		if len(steps) != 2 || steps[1].Outcome != row.Failed || steps[1].Seconds != (time.Minute+grace).Seconds() {
			t.Errorf("steps %+v, want the second to fail after %v", steps, time.Minute+grace)
		}
	})
}

// TestLastWordsOfACNIThatIsGone has a step that fails after the CNI was removed.
func TestLastWordsOfACNIThatIsGone(t *testing.T) {
	r, n := &Run{}, &cluster.Node{Name: "n1"}
	r.Cluster = &cluster.Cluster{Members: []*cluster.Node{n}}
	r.keepWords(t.Context(), "cni", func(_ context.Context, n *cluster.Node) string { return "at the end of " + n.Name })
	must.Be(t, "cniLog()", "at the end of n1", r.cniLog(t.Context(), n))
}

func TestUndeclaredFindings(t *testing.T) {
	found := map[string]string{"PW1": "n1: PW1: warn", "PW2": "n1: PW2: fail"}
	must.OK(t, undeclared(found, map[string]string{"PW1": "so it is", "PW2": "and this"}))
	err := undeclared(found, map[string]string{"PW1": "so it is"})
	must.Be(t, "undeclared()", found["PW2"], must.Text(err))
}

func TestCapInForce(t *testing.T) {
	page := `podweir_pod_limit_bits_per_second{direction="egress",interface="eth0",namespace="default",pod="a"} 1e+07
podweir_pod_limit_bits_per_second{direction="ingress",interface="net1",namespace="default",pod="a"} 5e+06
podweir_pod_limit_bits_per_second{direction="ingress",interface="eth0",namespace="default",pod="ab"} 3e+06
`
	for _, tc := range []struct {
		pod, direction string
		want           uint64
	}{{"a", "egress", 10_000_000}, {"a", "ingress", 0}, {"ab", "ingress", 3_000_000}} {
		must.Be(t, tc.direction+" of "+tc.pod, tc.want, capInForce(page, tc.pod, tc.direction))
	}
}
