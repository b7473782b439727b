// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// decoder takes no field that a kind does not have, and none twice.
func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
}

func objects(t *testing.T, version string, values map[string]any) []runtime.Object {
	t.Helper()
	var out []runtime.Object
	d := decoder(t)
	for _, m := range mustRender(t, version, values) {
		r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(m.Text)))
		for {
			doc, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(bytes.TrimSpace(doc)) == 0 {
				continue
			}
			o, _, err := d.Decode(doc, nil, nil)
			if err != nil {
				t.Errorf("%s, Kubernetes %s: %v", m.Template, version, err)
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
		for key, value := range d.Spec.Template.Labels {
			if len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0 {
				t.Errorf("%s: label %s=%s is none", name, key, value)
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
		if account := only[*core.ServiceAccount](t, all); pod.ServiceAccountName != account.Name {
			t.Errorf("%s: runs as %s, the account is %s", name, pod.ServiceAccountName, account.Name)
		}
		if port := container.Ports[0]; port.ContainerPort >= 32768 {
			t.Errorf("%s: port %d is one that Linux gives to connections", name, port.ContainerPort)
		}
		for _, probe := range []*core.Probe{container.LivenessProbe, container.ReadinessProbe} {
			if port := probe.HTTPGet.Port.StrVal; port != container.Ports[0].Name {
				t.Errorf("%s: a probe asks port %s, the container has %s", name, port, container.Ports[0].Name)
			}
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
		case security.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
			t.Errorf("%s: seccomp %s", name, security.SeccompProfile.Type)
		case !slices.Equal(security.Capabilities.Drop, []core.Capability{"ALL"}):
			t.Errorf("%s: drops %v", name, security.Capabilities.Drop)
		case !slices.Equal(security.Capabilities.Add, []core.Capability{"NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"}):
			t.Errorf("%s: adds %v", name, security.Capabilities.Add)
		}
		for _, m := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
			// The kubelet takes it from privileged containers alone.
			if m.MountPropagation != nil && *m.MountPropagation == core.MountPropagationBidirectional {
				t.Errorf("%s: %s is mounted with Bidirectional", name, m.Name)
			}
		}
	}
}

func TestNRIWritesNothingToTheNode(t *testing.T) {
	d := only[*apps.DaemonSet](t, objects(t, "1.34", map[string]any{"delivery": "nri"}))
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		if strings.Contains(v.HostPath.Path, "cni") || strings.HasPrefix(v.HostPath.Path, "/var/lib") {
			t.Errorf("it mounts %s", v.HostPath.Path)
		}
	}
}

func TestRolesGrantOnlyWhatIsUsed(t *testing.T) {
	all := objects(t, "1.34", nil)
	cluster := only[*rbac.ClusterRole](t, all).Rules
	own := only[*rbac.Role](t, all).Rules
	var got []string
	for _, r := range append(slices.Clone(cluster), own...) {
		got = append(got, strings.Join(r.Resources, ",")+"["+strings.Join(r.ResourceNames, ",")+"]: "+strings.Join(r.Verbs, ","))
	}
	want := []string{"pods[]: list,watch", "events[]: create", "daemonsets[podweir]: list,watch"}
	if !slices.Equal(got, want) {
		t.Errorf("rules = %q, want %q", got, want)
	}
}

var (
	capabilityLine = regexp.MustCompile(`^ +- [A-Z_]+( #.*)?$`)
	hostPathLine   = regexp.MustCompile(`hostPath:`)
	mountLine      = regexp.MustCompile(`mountPath:`)
	volumeName     = regexp.MustCompile(`\{name: \w+, mountPath`)
	commentLine    = regexp.MustCompile(`^ *#`)
)

// Whoever reads the templates of pods finds the reason for everything that they may
// do at its place.
func TestEveryPrivilegeHasItsReason(t *testing.T) {
	seen := 0
	for _, name := range []string{"daemonset.yaml", "cleanup.yaml", "_helpers.tpl"} {
		data, err := os.ReadFile(filepath.Join(chartDir, "templates", name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		for i, line := range lines {
			switch {
			case capabilityLine.MatchString(line):
				seen++
				if !strings.Contains(line, " # ") {
					t.Errorf("%s:%d: the capability has no reason", name, i+1)
				}
			case hostPathLine.MatchString(line) || mountLine.MatchString(line):
				seen++
				above := lines[i-1]
				if volume := volumeName.FindString(line); volume != "" && strings.Contains(above, volume) {
					above = lines[i-2] // two mounts of one volume share it
				}
				if !commentLine.MatchString(above) {
					t.Errorf("%s:%d: the path has no reason above it", name, i+1)
				}
			}
		}
	}
	if seen < 12 {
		t.Errorf("%d capabilities and paths were found: the patterns do not fit the files", seen)
	}
}
