// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rules

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

func objectRules() []Rule {
	return []Rule{
		{"EKS101", "it is no CNI plugin", cniPlugin},
		{"EKS102", "no Helm hooks: EKS leaves them out", hooks},
		{"EKS114", "no custom resources whose definition comes with the same add-on; no others by default", customResources},
		{"EKS115", "it has a Deployment or a DaemonSet that AWS can trace", workload},
		{"EKS116", "everything is in the add-on's one namespace", namespaces},
		{"EKS124", "roles grant what is named, nothing by wildcard", wildcards},
		{"EKS125", "no privileged container", privileged},
		{"EKS127", "a DaemonSet keeps off nodes that EKS runs by itself", computeTypes},
		{"EKS128", "of the node it writes to bpffs and below /run only", nodeFiles},
		{"EKS129", "podweir is delivered by nri or watch, which leave nothing on the node", podweirDelivery},
	}
}

// cniDir is where container runtimes look for plugins and their configuration:
// /opt/cni/bin, /etc/cni/net.d, and the same below the directories of distributions.
var cniDir = regexp.MustCompile(`/cni(/|$)`)

func cniPlugin(c *Chart) []Finding {
	return c.eachHostPath(func(o Object, pod map[string]any, volume, dir string) []Finding {
		if !cniDir.MatchString(dir) || !writable(pod, volume) {
			return nil
		}
		return []Finding{c.at(o, dir, `it may write to %s; AWS Marketplace: "Software cannot be Container Network Interface (CNI)"`, dir)}
	})
}

// nodeFiles finds directories of the node that can be written to, other than those
// that are gone with the next boot. Mounts below a directory are not read-only with
// it, and the node's root has all of them.
func nodeFiles(c *Chart) []Finding {
	return c.eachHostPath(func(o Object, pod map[string]any, volume, dir string) []Finding {
		switch {
		case dir == "/" && len(mounts(pod, volume)) > 0:
			return []Finding{c.at(o, "path: /", "it mounts the node's root: what is mounted below it can be written to, read-only or not")}
		case cniDir.MatchString(dir) || !writable(pod, volume) || volatile(dir):
			return nil // EKS101 has the first
		}
		return []Finding{c.at(o, dir, "it may write to the node's %s", dir)}
	})
}

// volatile reports whether a directory of the node is gone with the next boot.
func volatile(dir string) bool {
	for _, top := range []string{"/sys/fs/bpf", "/run", "/var/run"} {
		if dir == top || strings.HasPrefix(dir, top+"/") {
			return true
		}
	}
	return false
}

// podweirDelivery looks at the environment of podweir's containers: the chart says
// the delivery there. Charts of other software have none.
func podweirDelivery(c *Chart) []Finding {
	return c.eachPod(func(o Object, pod map[string]any) []Finding {
		var out []Finding
		for _, container := range containersOf(pod) {
			for _, e := range list(container, "env") {
				if d := str(e, "value"); str(e, "name") == "PODWEIR_DELIVERY" && d != "nri" && d != "watch" {
					out = append(out, c.at(o, "PODWEIR_DELIVERY", "the delivery %q writes to the node; an add-on takes nri or watch", d))
				}
			}
		}
		return out
	})
}

// eachHostPath calls f for each volume of a pod that is a directory of the node, with
// the volume's name.
func (c *Chart) eachHostPath(f func(o Object, pod map[string]any, volume, dir string) []Finding) []Finding {
	return c.eachPod(func(o Object, pod map[string]any) []Finding {
		var out []Finding
		for _, volume := range list(pod, "volumes") {
			if dir := str(volume, "hostPath", "path"); dir != "" {
				out = append(out, f(o, pod, str(volume, "name"), path.Clean("/"+dir))...)
			}
		}
		return out
	})
}

// writable reports whether a container of the pod mounts the volume other than
// read-only.
func writable(pod map[string]any, volume string) bool {
	return slices.ContainsFunc(mounts(pod, volume), func(m any) bool { return get(m, "readOnly") != true })
}

// mounts lists where the containers of a pod have a volume.
func mounts(pod map[string]any, volume string) []any {
	var out []any
	for _, container := range containersOf(pod) {
		for _, mount := range list(container, "volumeMounts") {
			if str(mount, "name") == volume {
				out = append(out, mount)
			}
		}
	}
	return out
}

func hooks(c *Chart) []Finding {
	var out []Finding
	for _, o := range c.rendered {
		annotations, _ := get(o.Fields, "metadata", "annotations").(map[string]any)
		for key, value := range annotations {
			if strings.HasPrefix(key, "helm.sh/hook") {
				out = append(out, c.at(o, key, "%s: %v; EKS renders with --no-hooks", key, value))
			}
		}
	}
	return out
}

// builtIn reports whether a group is the API server's own: "apps" and its
// like have no dot, the others end in .k8s.io. CustomResourceDefinitions may
// also use a k8s.io group; those are other projects'.
func builtIn(apiVersion string) bool {
	group, _, hasGroup := strings.Cut(apiVersion, "/")
	if !hasGroup {
		return true
	}
	builtInGroups := []string{
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
		"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
	}
	return !strings.Contains(group, ".") || slices.Contains(builtInGroups, group)
}

func customResources(c *Chart) []Finding {
	defined := map[string]bool{}
	for _, o := range c.rendered {
		if o.Kind() == "CustomResourceDefinition" {
			defined[str(o.Fields, "spec", "group")] = true
		}
	}
	var out []Finding
	for _, o := range c.rendered {
		version := str(o.Fields, "apiVersion")
		group, _, _ := strings.Cut(version, "/")
		switch {
		case builtIn(version):
		case defined[group]:
			out = append(out, c.at(o, version, "%s is defined by this chart; make it two add-ons", version))
		default:
			out = append(out, c.at(o, version, "%s is no built-in API; leave it off by default", version))
		}
	}
	return out
}

func workload(c *Chart) []Finding {
	for _, o := range c.rendered {
		if o.Kind() == "Deployment" || o.Kind() == "DaemonSet" {
			return nil
		}
	}
	if c.renderError != nil {
		return nil // EKS108 says so
	}
	return []Finding{{File: "templates", Message: "with these values the chart makes neither a Deployment nor a DaemonSet"}}
}

func namespaces(c *Chart) []Finding {
	var out []Finding
	for _, o := range c.rendered {
		ns := str(o.Fields, "metadata", "namespace")
		switch {
		case o.Kind() == "Namespace":
			out = append(out, c.at(o, "kind: Namespace", "EKS makes the add-on's namespace, and only that"))
		case ns != "" && ns != c.o.Namespace:
			out = append(out, c.at(o, ns, "namespace %s; the add-on lives in %s", ns, c.o.Namespace))
		}
		for _, subject := range list(o.Fields, "subjects") {
			if ns := str(subject, "namespace"); ns != "" && ns != c.o.Namespace {
				out = append(out, c.at(o, ns, "its subject %s is in %s; the add-on lives in %s", str(subject, "name"), ns, c.o.Namespace))
			}
		}
	}
	return out
}

func wildcards(c *Chart) []Finding {
	var out []Finding
	for _, o := range c.rendered {
		if o.Kind() != "Role" && o.Kind() != "ClusterRole" {
			if name := str(o.Fields, "roleRef", "name"); name == "cluster-admin" || name == "admin" {
				out = append(out, c.at(o, name, "binds %s", name))
			}
			continue
		}
		for _, rule := range list(o.Fields, "rules") {
			for _, what := range []string{"apiGroups", "resources", "verbs", "nonResourceURLs"} {
				if slices.Contains(list(rule, what), any("*")) {
					out = append(out, c.at(o, "*", `%s: "*"; name what is needed`, what))
				}
			}
		}
	}
	return out
}

func privileged(c *Chart) []Finding {
	return c.eachPod(func(o Object, pod map[string]any) []Finding {
		var out []Finding
		for _, container := range containersOf(pod) {
			name := str(container, "name")
			security := get(container, "securityContext")
			if get(security, "privileged") == true {
				out = append(out, c.at(o, "privileged: true", "container %s is privileged; name the capabilities it needs", name))
			}
			if added := list(security, "capabilities", "add"); len(added) > 0 {
				f := c.at(o, "add:", "container %s has the capabilities %v: be ready to explain each", name, added)
				f.Review = true
				out = append(out, f)
			}
		}
		for _, volume := range list(pod, "volumes") {
			if dir := str(volume, "hostPath", "path"); dir != "" {
				f := c.at(o, dir, "mounts the node's %s: be ready to explain it", dir)
				f.Review = true
				out = append(out, f)
			}
		}
		return out
	})
}

const computeLabel = "eks.amazonaws.com/compute-type"

// ownCompute are the compute types on which nobody else's DaemonSet is at
// home; the add-on vpc-cni keeps off the same.
var ownCompute = []any{"fargate", "hybrid", "auto"}

func computeTypes(c *Chart) []Finding {
	return c.eachPod(func(o Object, pod map[string]any) []Finding {
		if o.Kind() != "DaemonSet" {
			return nil
		}
		for _, e := range nodeExpressions(pod) {
			if str(e, "key") == computeLabel && str(e, "operator") == "NotIn" && containsAll(list(e, "values"), ownCompute) {
				return nil
			}
		}
		return []Finding{c.at(o, "affinity:", "no node affinity with %s NotIn %v", computeLabel, ownCompute)}
	})
}

func containsAll(have, want []any) bool {
	return !slices.ContainsFunc(want, func(v any) bool { return !slices.Contains(have, v) })
}

func (c *Chart) eachPod(look func(Object, map[string]any) []Finding) []Finding {
	var out []Finding
	for _, o := range c.rendered {
		if pod := podSpec(o); pod != nil {
			out = append(out, look(o, pod)...)
		}
	}
	return out
}

// podSpec returns the pod that an object makes, or nil.
func podSpec(o Object) map[string]any {
	for _, way := range [][]string{
		{"spec", "template", "spec"},
		{"spec", "jobTemplate", "spec", "template", "spec"},
		{"spec"},
	} {
		if spec, ok := get(o.Fields, way...).(map[string]any); ok && spec["containers"] != nil {
			return spec
		}
	}
	return nil
}

func containers(o Object) []any { return containersOf(podSpec(o)) }

func containersOf(pod map[string]any) []any {
	return slices.Concat(list(pod, "initContainers"), list(pod, "containers"))
}

// describe joins the steps to a value as a user writes them.
func describe(steps []string) string {
	if len(steps) == 0 {
		return "the top level"
	}
	return fmt.Sprintf("%q", strings.Join(steps, "."))
}
