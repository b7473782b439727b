// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
)

// chooses waits until the agent of a node has chosen a delivery.
func chooses(t *testing.T, n *cluster.Node, delivery string) {
	t.Helper()
	clustertest.Eventually(t, 60*time.Second, "delivery on "+n.Name, func(ctx context.Context) error {
		page, err := n.Fetch(ctx, "/metrics")
		if err == nil && !strings.Contains(page, `podweir_delivery_info{delivery="`+delivery+`"} 1`) {
			err = fmt.Errorf("it is not %s", delivery)
		}
		return err
	})
}

// shaped waits until podweir shapes both directions of a pod, ingress at a
// side, or at any if it is empty, and nothing has to be mended.
func shaped(t *testing.T, p *workload.Pod, side string) {
	t.Helper()
	shapedWithin(t, 20*time.Second, p, side)
}

func shapedWithin(t *testing.T, most time.Duration, p *workload.Pod, side string) {
	t.Helper()
	clustertest.Eventually(t, most, p.Name, func(ctx context.Context) error {
		a, err := suite.Attachment(ctx, p.Node, p.Name)
		if err == nil && a == nil {
			err = errors.New("no attachment")
		}
		if err != nil {
			return err
		}
		return differs(a, side)
	})
}

// differs says what is not as [shaped] wants it.
func differs(a *cluster.Attachment, side string) error {
	var errs []error
	if a.Error != "" || len(a.Drift) > 0 {
		errs = append(errs, fmt.Errorf("error %q, drift %q", a.Error, a.Drift))
	}
	if len(a.Directions) != 2 {
		errs = append(errs, fmt.Errorf("%d directions, want 2", len(a.Directions)))
	}
	for _, d := range a.Directions {
		want := "pod"
		if d.Direction == "ingress" {
			want = cmp.Or(side, d.Side)
		}
		if d.Side != want || d.Queue != "tbf" {
			errs = append(errs, fmt.Errorf("%s has the queue %s at side %s, want tbf at %s: %q", d.Direction, d.Queue, d.Side, want, d.Notes))
		}
	}
	return errors.Join(errs...)
}
