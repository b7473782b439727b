// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
)

// install installs podweir as docs/howto/install-beside-cilium.md says, or
// changes its values.
func install(t *testing.T, set ...string) {
	t.Helper()
	clustertest.Install(t, suite.Cluster, chart, "cilium", set...)
}

func uninstall(t *testing.T) {
	t.Helper()
	clustertest.Uninstall(t, suite.Cluster)
}

// chooses waits until the agent of a node has chosen a delivery.
func chooses(t *testing.T, n *cluster.Node, delivery string) {
	t.Helper()
	eventually(t, 60*time.Second, "delivery on "+n.Name, func(ctx context.Context) error {
		page, err := n.Fetch(ctx, "/metrics")
		if err == nil && !strings.Contains(page, `podweir_delivery_info{delivery="`+delivery+`"} 1`) {
			err = fmt.Errorf("it is not %s", delivery)
		}
		return err
	})
}

// attachment is what podweir says of an interface.
type attachment struct {
	Pod        string
	Error      string
	Drift      []string
	Directions []struct {
		Direction, Side, Queue string
		Notes                  []string
	}
}

// shaped waits until podweir shapes both directions of a pod, ingress at a
// side, or at any if it is empty, and nothing has to be mended.
func shaped(t *testing.T, p *workload.Pod, side string) {
	t.Helper()
	shapedWithin(t, 20*time.Second, p, side)
}

func shapedWithin(t *testing.T, most time.Duration, p *workload.Pod, side string) {
	t.Helper()
	eventually(t, most, p.Name, func(ctx context.Context) error {
		// It ends with an error if any pod is not limited as it should be.
		out, failed := suite.Podweir(ctx, p.Node, "status", "-o", "json")
		var status struct {
			Attachments []attachment
			Failures    []struct{ Error string }
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return errors.Join(failed, err)
		}
		for _, a := range status.Attachments {
			if a.Pod == "default/"+p.Name {
				return a.err(side)
			}
		}
		return fmt.Errorf("no attachment; failures: %+v", status.Failures)
	})
}

func (a attachment) err(side string) error {
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

// capped loads a pod with a peer and fails the test unless both directions keep
// to their caps; 0 is no cap.
func capped(t *testing.T, what string, p, peer *workload.Pod, ingress, egress uint64) {
	t.Helper()
	r, err := workload.Load{Pod: p, Peer: peer}.For(t.Context(), 4*time.Second)
	judge(t, what, r, err, ingress, egress)
}

func judge(t *testing.T, what string, r workload.Traffic, err error, ingress, egress uint64) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := r.Err(ingress, egress); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, d := range r.Directions(ingress, egress) {
		t.Logf("%s: %s", what, d)
	}
}
