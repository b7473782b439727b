// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

const (
	ingressKey = "kubernetes.io/ingress-bandwidth"
	egressKey  = "kubernetes.io/egress-bandwidth"
)

// limits are annotations that ask for a cap in each direction.
func limits(ingress, egress string) map[string]string {
	return map[string]string{ingressKey: ingress, egressKey: egress}
}

// pod is one that was made and runs.
type pod struct {
	name string
	node *cluster.Node
	ip   netip.Addr
	ns   cluster.Netns
}

// manifest is a pod with the program work; it serves.
func manifest(name string, node *cluster.Node, annotations map[string]string) map[string]any {
	return cluster.Manifest(name, node.Name, annotations, "serve")
}

// create makes pods; they are deleted with the test.
func create(t *testing.T, manifests ...map[string]any) {
	t.Helper()
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": manifests})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range manifests {
		names = append(names, m["metadata"].(map[string]any)["name"].(string))
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		limit := 25*time.Second + time.Duration(len(names))*time.Second
		ctx, cancel := context.WithTimeout(context.Background(), limit+5*time.Second)
		defer cancel()
		args := append([]string{"delete", "pod", "--ignore-not-found", "--wait", "--timeout=" + limit.String()}, names...)
		if _, err := suite.Kubectl(ctx, "", args...); err != nil {
			t.Error(err)
		}
	})
	// Namespaces get their service account a moment after they are there.
	eventually(t, 20*time.Second, "create pods", func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, string(list), "apply", "-f", "-")
		return err
	})
}

// ready waits for a pod that was created.
func ready(t *testing.T, name string) *pod {
	t.Helper()
	n, ip, err := suite.Ready(t.Context(), name)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(kubectl(t, "describe", "pod", name), 15))
	}
	p := &pod{name: name, node: n, ip: ip}
	if p.ns, err = p.node.PodNetns(p.ip); err != nil {
		t.Fatal(err)
	}
	return p
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
	args := []string{"annotate", "--overwrite", "pod", p.name}
	for key, value := range annotations {
		if value == "" {
			args = append(args, key+"-")
		} else {
			args = append(args, key+"="+value)
		}
	}
	kubectl(t, args...)
}

// work runs the program work in the pod.
func (p *pod) work(ctx context.Context, args ...string) error {
	_, err := suite.Kubectl(ctx, "", append([]string{"exec", p.name, "--", "/work"}, args...)...)
	return err
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
