// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// undo runs kubectl when the test ends, whose context has ended by then.
func undo(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() { must.OK(t, must.Err(suite.Kubectl(context.WithoutCancel(t.Context()), "", args...))) })
}

// annotateNamespace changes annotations of the pods' namespace until the test ends.
func annotateNamespace(t *testing.T, pairs ...string) {
	t.Helper()
	kubectl(t, append([]string{"annotate", "--overwrite", "namespace", "default"}, pairs...)...)
	for _, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		undo(t, "annotate", "namespace", "default", name+"-")
	}
}

// TestPrivilegedNamespaceRates sets rates on the namespace of pods that run, and of
// pods that start.
func TestPrivilegedNamespaceRates(t *testing.T) {
	install(t, "namespaces.interval=10s")
	quiet := run(t, "quiet", 0, nil)
	greedy := run(t, "greedy", 0, map[string]string{"podweir.io/ingress-rate": "100M", "podweir.io/egress-rate": "200M"})
	greedy.limited(t, 100_000_000, 200_000_000)
	quiet.limited(t, 0, 0)
	annotateNamespace(t, "podweir.io/default-egress-rate=20M", "podweir.io/max-ingress-rate=30M")
	quiet.limited(t, 30_000_000, 20_000_000)
	greedy.limited(t, 30_000_000, 200_000_000)
	e := sees(t, greedy.Name, "podweir.io/ingress-rate", "at most 30 Mbit/s", "podweir.io/max-ingress-rate")
	if e.Reason != "BandwidthAboveMaximum" {
		t.Errorf("event %+v, want BandwidthAboveMaximum", e)
	}
	// At ADD, and not by the agent.
	next := run(t, "next", 0, nil)
	next.limited(t, 30_000_000, 20_000_000)
	out, err := podweir(t, next.Node, "status", "-o", "json")
	if err != nil || !strings.Contains(out, next.Name) {
		t.Fatalf("status: %v\n%s", err, out)
	}
	for _, p := range []*pod{quiet, next} {
		must.Be(t, "who attached "+p.Name, map[string]string{"quiet": "agent", "next": "plugin"}[p.Name], p.by(t, out))
	}
}

// TestPrivilegedNamespaceOnANode limits the pods of a namespace together: one that runs, and one that starts.
func TestPrivilegedNamespaceOnANode(t *testing.T) {
	install(t, "namespaces.interval=10s")
	first := run(t, "first", 0, nil)
	annotateNamespace(t, "podweir.io/node-ingress-rate=50M")
	first.limited(t, 50_000_000, 0)
	second := run(t, "second", 0, nil)
	second.limited(t, 50_000_000, 0)
	for _, p := range []*pod{first, second} {
		eventually(t, time.Minute, p.Name+" has a share", func(context.Context) error {
			out, err := podweir(t, p.Node, "status")
			if err == nil && (!strings.Contains(out, "ingress of namespace default has") || strings.Contains(out, "outside of it")) {
				err = errors.New(out)
			}
			return err
		})
	}
}

// by says who attached the pod, by what status prints as JSON.
func (p *pod) by(t *testing.T, status string) string {
	t.Helper()
	var report struct {
		Attachments []struct{ Pod, By string }
	}
	must.OK(t, json.Unmarshal([]byte(status), &report))
	for _, a := range report.Attachments {
		if a.Pod == "default/"+p.Name {
			return a.By
		}
	}
	return "nobody"
}

// TestPrivilegedAdmissionPolicy tries what a tenant may change of limits.
func TestPrivilegedAdmissionPolicy(t *testing.T) {
	install(t, "admissionPolicy.enabled=true")
	annotateNamespace(t, "podweir.io/max-egress-rate=10M")
	p := run(t, "tenants", 0, map[string]string{"podweir.io/egress-rate": "5M"})
	for _, binding := range []string{"edit", "admin"} {
		kubectl(t, "create", "clusterrolebinding", "tenant-"+binding, "--clusterrole="+binding, "--user=tenant")
		undo(t, "delete", "clusterrolebinding", "tenant-"+binding)
	}
	kubectl(t, "create", "clusterrole", "namespaces", "--verb=get,patch", "--resource=namespaces")
	undo(t, "delete", "clusterrole", "namespaces")
	kubectl(t, "create", "clusterrolebinding", "tenant-namespaces", "--clusterrole=namespaces", "--user=tenant")
	undo(t, "delete", "clusterrolebinding", "tenant-namespaces")
	tenant := func(args ...string) error {
		_, err := suite.Kubectl(t.Context(), "", append([]string{"--as=tenant"}, args...)...)
		return err
	}
	const pods, namespaces = "the rates of a pod cannot be changed", "the limits of a namespace cannot be changed"
	eventually(t, time.Minute, "policy in force", func(context.Context) error {
		err := tenant("annotate", "pod", p.Name, "kubernetes.io/ingress-bandwidth=9M")
		if err == nil {
			_, again := suite.Kubectl(t.Context(), "", "annotate", "pod", p.Name, "kubernetes.io/ingress-bandwidth-")
			return errors.Join(errors.New("a tenant added a rate"), again)
		}
		if !strings.Contains(err.Error(), pods) {
			return err
		}
		return nil
	})
	for what, tc := range map[string]struct {
		args []string
		want string
	}{
		"raise":             {[]string{"annotate", "--overwrite", "pod", p.Name, "podweir.io/egress-rate=9M"}, pods},
		"take away":         {[]string{"annotate", "pod", p.Name, "podweir.io/egress-rate-"}, pods},
		"raise the maximum": {[]string{"annotate", "--overwrite", "namespace", "default", "podweir.io/max-egress-rate=1G"}, namespaces},
		"ask for too much":  {[]string{"run", "greedy", "--image=x", "--annotations=podweir.io/egress-rate=11M"}, "to what its namespace may have"},
		"tune":              {[]string{"annotate", "pod", p.Name, "podweir.io/policy=flat"}, ""},
	} {
		err := tenant(tc.args...)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
	p.limited(t, 0, 5_000_000)
}
