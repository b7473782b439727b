// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
)

const egressKey = workload.EgressKey

// limits are annotations that ask for a cap in each direction.
func limits(ingress, egress string) map[string]string { return workload.Limits(ingress, egress) }

// pod is one that was made and runs.
type pod struct{ *workload.Pod }

// manifest is a pod with the program work; it serves.
func manifest(name string, node *cluster.Node, annotations map[string]string) map[string]any {
	return workload.Manifest(name, node, annotations)
}

func create(t *testing.T, manifests ...map[string]any) {
	t.Helper()
	clustertest.Create(t, suite.Cluster, manifests...)
}

// ready waits for a pod that was created.
func ready(t *testing.T, name string) *pod {
	t.Helper()
	return &pod{clustertest.Ready(t, suite.Cluster, name)}
}

// run makes a pod and waits for it.
func run(t *testing.T, name string, node int, annotations map[string]string) *pod {
	t.Helper()
	create(t, manifest(name, suite.Members[node], annotations))
	return ready(t, name)
}

// annotate changes annotations of a running pod; an empty value removes one.
func (p *pod) annotate(t *testing.T, annotations map[string]string) {
	t.Helper()
	if err := p.Annotate(t.Context(), annotations); err != nil {
		t.Fatal(err)
	}
}

// event is what the API server keeps of one.
type event struct {
	Type, Reason, Message string
	InvolvedObject        struct{ Kind, Name, Namespace string }
}

// events are those about an object, of any kind and namespace.
func events(ctx context.Context, name string) ([]event, error) {
	var list struct{ Items []event }
	err := suite.Get(ctx, &list, "events", "--all-namespaces", "--field-selector", "involvedObject.name="+name)
	return list.Items, err
}

// sees waits for an Event about an object whose message has all the texts.
func sees(t *testing.T, name string, texts ...string) event {
	t.Helper()
	var found event
	eventually(t, 20*time.Second, "Event", func(ctx context.Context) error {
		list, err := events(ctx, name)
		if err != nil {
			return err
		}
		for _, e := range list {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(e.Message, text)
			}
			if all {
				found = e
				return nil
			}
		}
		return fmt.Errorf("none of %s has %q: %+v", name, texts, list)
	})
	return found
}
