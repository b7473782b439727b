// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// decoder takes no field that a kind does not have, and none twice.
func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme} {
		mustOK(t, add(s))
	}
	return serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
}

func objects(t *testing.T, version string, values map[string]any) []runtime.Object {
	t.Helper()
	return decoded(t, mustRender(t, version, values))
}

func decoded(t *testing.T, all []manifest) []runtime.Object {
	t.Helper()
	var out []runtime.Object
	d := decoder(t)
	for _, m := range all {
		r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(m.text)))
		for {
			doc, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			mustOK(t, err)
			if len(bytes.TrimSpace(doc)) == 0 {
				continue
			}
			o, _, err := d.Decode(doc, nil, nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", m.template, err, doc)
				continue
			}
			out = append(out, o)
		}
	}
	return out
}

// only returns the one object of a type.
func only[T runtime.Object](t *testing.T, all []runtime.Object) T {
	t.Helper()
	var found []T
	for _, o := range all {
		if x, ok := o.(T); ok {
			found = append(found, x)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T, want 1", len(found), *new(T))
	}
	return found[0]
}

// named returns the object of a type and name.
func named[T metav1.Object](t *testing.T, all []runtime.Object, name string) T {
	t.Helper()
	for _, o := range all {
		if x, ok := o.(T); ok && x.GetName() == name {
			return x
		}
	}
	t.Fatalf("no object of type %T called %s", *new(T), name)
	return *new(T)
}

// rule is a rule in one line.
func rule(r *rbac.PolicyRule) string {
	return strings.Join(r.Resources, ",") + "[" + strings.Join(r.ResourceNames, ",") + "]: " + strings.Join(r.Verbs, ",")
}

func TestObjectsAreOfTheirKinds(t *testing.T) {
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	for name, values := range mustEnvironments(t) {
		for _, version := range kubeVersions {
			for _, o := range objects(t, version, values) {
				if o.GetObjectKind().GroupVersionKind().Group == "monitoring.coreos.com" {
					continue
				}
				// What a server-side apply refuses, as EKS does one: two entries
				// of a list with the same key.
				if _, err := converter.ObjectToTyped(o); err != nil {
					t.Errorf("%s, Kubernetes %s: %v", name, version, err)
				}
			}
		}
	}
}

// A name is a text, also where YAML has another meaning for it.
func TestNamesThatYAMLReadsOtherwise(t *testing.T) {
	for _, name := range []string{"123", "1e3", "on", "null", "0x10"} {
		values := everything("podMonitor")
		maps.Copy(values, map[string]any{
			"fullnameOverride": "", "priorityClassName": name, "imagePullSecrets": []any{map[string]any{"name": name}}, "cleanUp": map[string]any{"nodes": []any{name}},
			"metrics": map[string]any{"tls": map[string]any{"enabled": true, "secretName": name}, "service": map[string]any{"enabled": false}},
		})
		manifests, _, err := renderAs(name, name, "1.34", values)
		mustOK(t, err)
		if d := only[*apps.DaemonSet](t, decoded(t, manifests)); d.Name != name || d.Namespace != name || d.Spec.Template.Spec.PriorityClassName != name {
			t.Errorf("the DaemonSet is %s/%s", d.Namespace, d.Name)
		}
		values["metrics"] = map[string]any{"address": "::"}
		if _, _, err := renderAs("a."+name, name, "1.34", values); err == nil || !strings.Contains(err.Error(), "cannot be that of a Service: set fullnameOverride") {
			t.Errorf("a Service of the name a.%s: %v", name, err)
		}
		_, _, before := renderAs(name, name, "1.35", values)
		if _, _, err := renderAs(name, name, "1.36", values); err != nil || (before != nil) != (name[0] < 'a') {
			t.Errorf("a Service of the name %s: %v before Kubernetes 1.36, %v with it", name, before, err)
		}
	}
}

func TestDaemonSetFitsTogether(t *testing.T) {
	for name, values := range mustEnvironments(t) {
		all := objects(t, "1.34", values)
		d := only[*apps.DaemonSet](t, all)
		pod := d.Spec.Template.Spec
		container := pod.Containers[0]
		for key, value := range d.Spec.Selector.MatchLabels {
			if d.Spec.Template.Labels[key] != value {
				t.Errorf("%s: the selector asks for %s=%s, the pods have %q", name, key, value, d.Spec.Template.Labels[key])
			}
		}
		volumes, mounted := sets.New[string](), sets.New[string]()
		for _, v := range pod.Volumes {
			volumes.Insert(v.Name)
		}
		for _, m := range container.VolumeMounts {
			mounted.Insert(m.Name)
		}
		if !volumes.Equal(mounted) {
			t.Errorf("%s: volumes %v, mounted %v", name, sets.List(volumes), sets.List(mounted))
		}
		named[*core.ServiceAccount](t, all, pod.ServiceAccountName)
		// The agent listens for probes on the loopback alone.
		for _, probe := range []*core.Probe{container.LivenessProbe, container.ReadinessProbe} {
			if get := probe.HTTPGet; get.Port.StrVal != container.Ports[1].Name || get.Host != "127.0.0.1" {
				t.Errorf("%s: a probe asks %s port %s, the container has %s", name, get.Host, get.Port.StrVal, container.Ports[1].Name)
			}
		}
	}
}

// Whoever reads all nodes needs the role of the readers and no other right. The agents accept
// tokens of the account that it may make tokens of, on the port that their pods name.
// Nobody has the role by the chart alone, and no pod runs as that account.
func TestReadersOfTheCluster(t *testing.T) {
	all := objects(t, "1.34", map[string]any{"fullnameOverride": "net-podweir", "cluster": map[string]any{"port": 9500}})
	var rules []string
	for _, r := range named[*rbac.Role](t, all, "net-podweir-reader").Rules {
		rules = append(rules, rule(&r))
	}
	want := []string{
		"pods[]: list", "daemonsets[net-podweir]: get", "pods/proxy[]: get", "serviceaccounts/token[net-podweir-reader]: create",
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	account := named[*core.ServiceAccount](t, all, "net-podweir-reader")
	if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
		t.Error("the account's token is mounted into pods")
	}
	for _, o := range all {
		if b, ok := o.(*rbac.RoleBinding); ok && (b.RoleRef.Name == account.Name || b.Subjects[0].Name == account.Name) {
			t.Errorf("%s binds the readers", b.Name)
		}
	}
	settings := only[*core.ConfigMap](t, all).Data["agent.yaml"]
	for _, want := range []string{"cluster-address: \":9500\"\n", "cluster-reader: kube-system/net-podweir-reader\n"} {
		if !strings.Contains(settings, want) {
			t.Errorf("the agent's settings lack %q:\n%s", want, settings)
		}
	}
	ports := only[*apps.DaemonSet](t, all).Spec.Template.Spec.Containers[0].Ports
	if !slices.ContainsFunc(ports, func(p core.ContainerPort) bool { return p.Name == "cluster" && p.ContainerPort == 9500 }) {
		t.Errorf("ports %v: none is called cluster", ports)
	}
	for _, o := range objects(t, "1.34", map[string]any{"cluster": map[string]any{"enabled": false}}) {
		if m, err := meta.Accessor(o); err != nil || strings.HasSuffix(m.GetName(), "-reader") {
			t.Errorf("%T %v is there though nobody reads all nodes: %v", o, m, err)
		}
	}
}

func TestLeastPrivilege(t *testing.T) {
	for name, values := range mustEnvironments(t) {
		d := only[*apps.DaemonSet](t, objects(t, "1.34", values))
		security := d.Spec.Template.Spec.Containers[0].SecurityContext
		switch {
		case *security.Privileged:
			t.Errorf("%s: privileged", name)
		case !*security.ReadOnlyRootFilesystem:
			t.Errorf("%s: its root is writable", name)
		case security.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault && security.SeccompProfile.LocalhostProfile == nil:
			t.Errorf("%s: seccomp %s", name, security.SeccompProfile.Type)
		case !slices.Equal(security.Capabilities.Drop, []core.Capability{"ALL"}):
			t.Errorf("%s: drops %v", name, security.Capabilities.Drop)
		}
		pod := d.Spec.Template.Spec
		root := slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.HostPath != nil && v.HostPath.Path == "/" })
		capabilities := []core.Capability{"NET_ADMIN", "SYS_ADMIN"}
		eks := strings.HasPrefix(name, "eks")
		if !eks {
			capabilities = append(capabilities, "SYS_PTRACE")
		}
		if root == eks || !slices.Equal(security.Capabilities.Add, capabilities) {
			t.Errorf("%s: adds %v, has the node's root: %v; want %v", name, security.Capabilities.Add, root, capabilities)
		}
		for _, m := range pod.Containers[0].VolumeMounts {
			// What the agent writes is its own, or the user's, or that of CNIs.
			if !m.ReadOnly && !slices.Contains([]string{"bpffs", "run", "state", "more", "conflists", "plugins"}, m.Name) {
				t.Errorf("%s: %s is mounted for writing", name, m.MountPath)
			}
			// The kubelet takes it from privileged containers alone.
			if m.MountPropagation != nil && *m.MountPropagation == core.MountPropagationBidirectional {
				t.Errorf("%s: %s is mounted with Bidirectional", name, m.Name)
			}
		}
	}
}

// With nri the agent writes no file. It can remove those of a former delivery,
// unless the operator says that the node is not to be written to.
func TestNRIMountsOnlyWhatCleanUpNeeds(t *testing.T) {
	addOn, err := readYAML(chartDir + "/values/eks-addon.yaml")
	mustOK(t, err)
	for name, c := range map[string]struct {
		values map[string]any
		want   []string
	}{
		"as it comes":       {map[string]any{"delivery": "nri"}, []string{"/etc/cni/net.d", "/opt/cni/bin", "/var/lib/podweir"}},
		"not to be written": {map[string]any{"delivery": "nri", "cleanUp": map[string]any{"formerDelivery": false}}, nil},
		"watch":             {map[string]any{"delivery": "watch", "cleanUp": map[string]any{"formerDelivery": false}}, nil},
		"an EKS add-on":     {addOn, nil},
	} {
		var got []string
		pod := only[*apps.DaemonSet](t, objects(t, "1.34", c.values)).Spec.Template.Spec
		for _, v := range pod.Volumes {
			written := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.Name == v.Name && !m.ReadOnly })
			if written && v.HostPath != nil && (strings.Contains(v.HostPath.Path, "cni") || strings.HasPrefix(v.HostPath.Path, "/var/lib")) {
				got = append(got, v.HostPath.Path)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: it mounts %q, want %q", name, got, c.want)
		}
	}
}

// The Pod of "helm test" sees what the agent sees and writes to nothing that lasts. A
// hook has to be told from the release by its labels: the agents' Service and monitors
// choose pods by theirs.
func TestPodOfHelmTest(t *testing.T) {
	for name, values := range mustEnvironments(t) {
		all := objects(t, "1.34", values)
		agent := only[*apps.DaemonSet](t, all).Spec
		i := slices.IndexFunc(all, func(o runtime.Object) bool { _, ok := o.(*core.Pod); return ok })
		if (i < 0) != (name == "eks-addon") {
			t.Errorf("%s: has a Pod for helm test: %v", name, i >= 0)
		}
		if i < 0 {
			continue
		}
		pod := all[i].(*core.Pod)
		if diff := cmp.Diff(agent.Template.Spec.Containers[0].SecurityContext, pod.Spec.Containers[0].SecurityContext); diff != "" {
			t.Errorf("%s: rights (-agent +test):\n%s", name, diff)
		}
		if pod.Annotations["helm.sh/hook"] != "test" || pod.Labels["app.kubernetes.io/name"] == agent.Selector.MatchLabels["app.kubernetes.io/name"] {
			t.Errorf("%s: annotations %v, labels %v", name, pod.Annotations, pod.Labels)
		}
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			if !m.ReadOnly && m.Name != "bpffs" && m.Name != "run" {
				t.Errorf("%s: %s is mounted for writing", name, m.MountPath)
			}
		}
	}
	// Also directories that are not the usual ones, of which eks shows few.
	node := map[string]any{"hostFiles": "eks", "confDir": "/etc/kubernetes/cni/net.d", "binDir": "/opt/cni/bin/", "criSocket": "/var/run/containerd/x.sock"}
	pod := only[*core.Pod](t, objects(t, "1.34", map[string]any{"node": node})).Spec.Containers[0]
	var seen []string
	for _, m := range pod.VolumeMounts {
		seen = append(seen, m.MountPath)
	}
	if !slices.Contains(seen, "/host/etc/kubernetes/cni/net.d") || !slices.Contains(seen, "/host/opt/cni/bin") {
		t.Errorf("the Pod does not see the directories that are named: %v", seen)
	}
	if !slices.Contains(pod.Env, core.EnvVar{Name: "PODWEIR_CRI_SOCKET", Value: "/host/run/containerd/x.sock"}) {
		t.Errorf("the socket in %v is not where the node's /var/run leads", pod.Env)
	}
}

// A role grants what the agent uses with these values, and nothing else.
func TestRolesGrantOnlyWhatIsUsed(t *testing.T) {
	const always = "pods[]: list,watch|events[]: create"
	const own = "|tokenreviews[]: create|daemonsets[podweir]: list,watch"
	for name, tc := range map[string]struct {
		values map[string]any
		want   string
	}{
		"own values": {nil, always + "|namespaces[]: get" + own},
		// No deletion is an uninstall: the agent neither knows its DaemonSet nor may ask about it.
		"no uninstall":  {map[string]any{"uninstall": map[string]any{"clean": false}}, always + "|namespaces[]: get|tokenreviews[]: create"},
		"no namespaces": {map[string]any{"namespaces": map[string]any{"interval": "0"}}, always + own},
		// Whoever has a stolen token of an agent learns of tokens only where readers have to show them.
		"no readers": {
			map[string]any{"cluster": map[string]any{"enabled": false}}, always + "|namespaces[]: get|daemonsets[podweir]: list,watch",
		},
		"readers of metrics alone": {
			map[string]any{"cluster": map[string]any{"enabled": false}, "metrics": map[string]any{"tls": map[string]any{"enabled": true}}},
			always + "|namespaces[]: get|tokenreviews[]: create|subjectaccessreviews[]: create|daemonsets[podweir]: list,watch",
		},
	} {
		all := objects(t, "1.34", tc.values)
		rules := only[*rbac.ClusterRole](t, all).Rules
		if strings.Contains(only[*core.ConfigMap](t, all).Data["agent.yaml"], "daemonset: kube-system/podweir\n") {
			rules = append(rules, named[*rbac.Role](t, all, "podweir").Rules...)
		}
		var got []string
		for _, r := range rules {
			got = append(got, rule(&r))
		}
		if got := strings.Join(got, "|"); got != tc.want {
			t.Errorf("%s: rules = %q, want %q", name, got, tc.want)
		}
	}
}
