// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func mustRows(t *testing.T) []row {
	t.Helper()
	rows, err := parse(data)
	must.OK(t, err)
	return rows
}

func find(t *testing.T, name string) *row {
	t.Helper()
	rows := mustRows(t)
	i := slices.IndexFunc(rows, func(r row) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("there is no row %q", name)
	}
	return &rows[i]
}

// TestRowsOfTheIssue names rows that have to be there: each supported Cilium with
// and without kube-proxy, exclusive and not, and the CNIs without a local row.
func TestRowsOfTheIssue(t *testing.T) {
	for _, version := range []string{"1.16", "1.17", "1.18", "1.19", "1.20"} {
		for _, variant := range []string{"kpr-exclusive", "kpr-shared", "proxy-exclusive", "proxy-shared", "netkit-exclusive"} {
			find(t, "cilium-"+version+"-"+variant)
		}
	}
	var cnis []string
	for _, r := range mustRows(t) {
		if !slices.Contains(cnis, r.cni.Name) {
			cnis = append(cnis, r.cni.Name)
		}
	}
	want := []string{"kindnet", "cilium", "calico", "antrea", "kube-router", "ovn-kubernetes", "eks", "aks", "gke"}
	if !slices.Equal(cnis, want) {
		t.Errorf("CNIs = %q, want %q", cnis, want)
	}
}

func TestParseRefuses(t *testing.T) {
	const good = "cnis: [{name: a, job: kind, versions: [v1], values: kind, install: [x], variants: [{name: b}]}]"
	if _, err := parse([]byte(good)); err != nil {
		t.Fatalf("parse(%s) = %v", good, err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"name: a", "nam: a", "field nam not found"},
		{"versions: [v1]", "versions: []", "versions and variants are required"},
		{"versions: [v1]", "versions: [v1, v1]", "there are two"},
		{"job: kind", "job: laptop", `job "laptop": want kind or cloud`},
		{"install: [x], ", "", "install is required"},
		{"job: kind", "job: cloud", "existing and the job cloud go together"},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("parse(%s) = %v, want %q in it", text, err, tt.want)
		}
	}
}

// TestKindConfig reads every configuration with the types of kind itself.
func TestKindConfig(t *testing.T) {
	for _, r := range mustRows(t) {
		text, err := r.kindConfig()
		must.OK(t, err)
		var got v1alpha4.Cluster
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%s: kind does not know this: %v\n%s", r.Name, err, text)
		}
		v1alpha4.SetDefaultsCluster(&got)
		if len(got.Nodes) != 3 || got.APIVersion != "kind.x-k8s.io/v1alpha4" || got.Networking.PodSubnet != podSubnet {
			t.Errorf("%s: kind reads %+v", r.Name, got)
		}
		if want := r.cni.Name != "kindnet"; got.Networking.DisableDefaultCNI != want {
			t.Errorf("%s: disableDefaultCNI = %v, want %v", r.Name, got.Networking.DisableDefaultCNI, want)
		}
		withoutProxy := slices.Contains(r.variant.Options, "kubeProxyReplacement=true") || r.variant.Name == "ebpf"
		if got := got.Networking.KubeProxyMode == "none"; got != withoutProxy {
			t.Errorf("%s: kind runs no kube-proxy: %v, want %v", r.Name, got, withoutProxy)
		}
	}
}

// TestValuesExist finds the chart's file of values for each row.
func TestValuesExist(t *testing.T) {
	for _, r := range mustRows(t) {
		if _, err := os.Stat(filepath.Join("../../../chart/values", r.cni.Values+".yaml")); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}

func TestCommands(t *testing.T) {
	got := find(t, "cilium-1.19-proxy-shared").commands("/tmp/x")
	want := "helm install cilium " + "cilium --repo https://helm.cilium.io --version 1.19.x --namespace kube-system --wait --timeout 10m " +
		"--set kubeProxyReplacement=false --set cni.exclusive=false"
	if len(got) != 1 || strings.Join(got[0], " ") != want {
		t.Errorf("commands() = %q, want %q", got, want)
	}
	for _, r := range mustRows(t) {
		for _, c := range r.commands("/tmp/x") {
			if strings.ContainsAny(strings.Join(c, " "), "{}") {
				t.Errorf("%s: a placeholder is left in %q", r.Name, c)
			}
		}
	}
}

// TestDryRun prints the commands of every row and runs none: there is no program
// at the root that it is given.
func TestDryRun(t *testing.T) {
	for _, r := range mustRows(t) {
		t.Run(r.Name, func(t *testing.T) {
			o := options{root: t.TempDir(), dryRun: true, registry: "registry.example", out: t.TempDir()}
			if err := o.row(t.Context(), &r); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(o.dir); !os.IsNotExist(err) {
				t.Errorf("the temporary directory %s is left: %v", o.dir, err)
			}
		})
	}
	o := options{dryRun: true}
	if err := o.row(t.Context(), find(t, "eks-vpc-cni-chain")); err == nil || !strings.Contains(err.Error(), "-registry") {
		t.Errorf("a cluster that exists, without a registry: %v, want an error that names -registry", err)
	}
}

// TestResult has a row fail at its first command, and finds that in its result.
func TestResult(t *testing.T) {
	o := options{root: t.TempDir(), out: t.TempDir(), keep: true}
	failure := o.row(t.Context(), find(t, "kindnet-default-as-it-comes"))
	if failure == nil {
		t.Fatal("there is no kind, and the row passed")
	}
	raw, err := os.ReadFile(filepath.Join(o.out, "result.json"))
	must.OK(t, err)
	var got result
	must.OK(t, json.Unmarshal(raw, &got))
	if got.Row != "kindnet-default-as-it-comes" || len(got.Steps) != 1 || !strings.Contains(got.Steps[0].Error, "bin/tools/kind create cluster") {
		t.Errorf("the row failed with %v, its result is %s", failure, raw)
	}
}

// TestManifests: only the server has limits, and it is alone on its node.
func TestManifests(t *testing.T) {
	o := options{}
	text, err := o.manifests([]string{"a", "b"})
	must.OK(t, err)
	for want, count := range map[string]int{"ingress-bandwidth": 1, "egress-bandwidth": 1, `"nodeName":"a"`: 1, `"nodeName":"b"`: 2, workImage: 3} {
		if got := strings.Count(string(text), want); got != count {
			t.Errorf("%q is %d times in the manifests, want %d:\n%s", want, got, count, text)
		}
	}
}
