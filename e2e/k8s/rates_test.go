// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// annotateNamespace changes annotations of the pods' namespace until the test ends.
func annotateNamespace(t *testing.T, pairs ...string) {
	t.Helper()
	suite.Kubectl(t, append([]string{"annotate", "--overwrite", "namespace", "default"}, pairs...)...)
	for _, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		suite.Undo(t, "annotate", "namespace", "default", name+"-")
	}
}

// TestPrivilegedNamespaceRates sets rates on the namespace of pods that run, and of
// pods that start.
func TestPrivilegedNamespaceRates(t *testing.T) {
	suite.Install(t, "namespaces.interval=10s")
	quiet := run(t, "quiet", 0, nil)
	greedy := run(t, "greedy", 0, map[string]string{"podweir.io/ingress-rate": "100M", "podweir.io/egress-rate": "200M"})
	greedy.limited(t, 100_000_000, 200_000_000)
	quiet.limited(t, 0, 0)
	annotateNamespace(t, "podweir.io/default-egress-rate=20M", "podweir.io/max-ingress-rate=30M")
	quiet.limited(t, 30_000_000, 20_000_000)
	greedy.limited(t, 30_000_000, 200_000_000)
	e := sees(t, greedy.Name, "podweir.io/ingress-rate", "at most 30 Mbit/s", "podweir.io/max-ingress-rate")
	must.Be(t, "the Event's reason", "BandwidthAboveMaximum", e.Reason)
	// At ADD, and not by the agent.
	next := run(t, "next", 0, nil)
	next.limited(t, 30_000_000, 20_000_000)
	for p, who := range map[*pod]string{quiet: "agent", next: "plugin"} {
		a := must.Get(suite.Attachment(t.Context(), p.Node, p.Name))(t)
		if a == nil || a.By != who {
			t.Errorf("%s is attached as %+v, want by the %s", p.Name, a, who)
		}
	}
}

// TestPrivilegedNamespaceOnANode limits the pods of a namespace together: one that runs, and one that starts.
func TestPrivilegedNamespaceOnANode(t *testing.T) {
	suite.Install(t, "namespaces.interval=10s")
	first := run(t, "first", 0, nil)
	annotateNamespace(t, "podweir.io/node-ingress-rate=50M")
	first.limited(t, 50_000_000, 0)
	second := run(t, "second", 0, nil)
	second.limited(t, 50_000_000, 0)
	for _, p := range []*pod{first, second} {
		clustertest.Eventually(t, time.Minute, p.Name+" has a share", func(context.Context) error {
			out, err := suite.Podweir(t.Context(), p.Node, "status")
			if err == nil && (!strings.Contains(out, "ingress of namespace default has") || strings.Contains(out, "outside of it")) {
				err = errors.New(out)
			}
			return err
		})
	}
}

// TestPrivilegedAdmissionPolicy tries what a tenant may change of limits.
func TestPrivilegedAdmissionPolicy(t *testing.T) {
	suite.Install(t, "admissionPolicy.enabled=true")
	annotateNamespace(t, "podweir.io/max-egress-rate=10M")
	p := run(t, "tenants", 0, map[string]string{"podweir.io/egress-rate": "5M"})
	for _, binding := range []string{"edit", "admin"} {
		suite.Kubectl(t, "create", "clusterrolebinding", "tenant-"+binding, "--clusterrole="+binding, "--user=tenant")
		suite.Undo(t, "delete", "clusterrolebinding", "tenant-"+binding)
	}
	suite.Kubectl(t, "create", "clusterrole", "namespaces", "--verb=get,patch", "--resource=namespaces")
	suite.Undo(t, "delete", "clusterrole", "namespaces")
	suite.Kubectl(t, "create", "clusterrolebinding", "tenant-namespaces", "--clusterrole=namespaces", "--user=tenant")
	suite.Undo(t, "delete", "clusterrolebinding", "tenant-namespaces")
	tenant := func(args ...string) error {
		_, err := suite.Cluster.Kubectl(t.Context(), "", append([]string{"--as=tenant"}, args...)...)
		return err
	}
	const pods, namespaces = "the rates of a pod cannot be changed", "the limits of a namespace cannot be changed"
	clustertest.Eventually(t, time.Minute, "policy in force", func(context.Context) error {
		err := tenant("annotate", "pod", p.Name, "kubernetes.io/ingress-bandwidth=9M")
		if err == nil {
			_, again := suite.Cluster.Kubectl(t.Context(), "", "annotate", "pod", p.Name, "kubernetes.io/ingress-bandwidth-")
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
		must.Part(t, what, tc.want, must.Text(err))
	}
	p.limited(t, 0, 5_000_000)
}
