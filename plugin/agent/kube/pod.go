// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"maps"
	"strings"

	"github.com/podweir/podweir/plugin/netconf"
)

// Pod is what the agent needs of a pod; the rest of it is not kept.
type Pod struct {
	Namespace, Name, UID string
	// Annotations are those that ask for a limit or say how to keep it.
	Annotations map[string]string
	// HostNetwork says that the pod has no interfaces of its own.
	HostNetwork bool
	// Started says that the pod has an address: its network is set up.
	Started bool
	// Ending says that the pod is being deleted; it may run for a while yet.
	Ending bool
	// Finished says that it has ended and will not start again.
	Finished bool
	// RuntimeUID is the pod's UID as the container runtime knows it. A static
	// pod has another one than its mirror in the API.
	RuntimeUID string
}

// Key is "namespace/name".
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// equal says whether nothing changed that the agent would act on.
func (p *Pod) equal(o *Pod) bool {
	return p.Namespace == o.Namespace && p.Name == o.Name && p.UID == o.UID && p.RuntimeUID == o.RuntimeUID &&
		p.HostNetwork == o.HostNetwork && p.Started == o.Started && p.Finished == o.Finished && p.Ending == o.Ending &&
		maps.Equal(p.Annotations, o.Annotations)
}

// mirrorAnnotation holds, on the mirror of a static pod, the UID that the
// kubelet gave to the pod (k8s.io/api/core/v1, MirrorPodAnnotationKey).
const mirrorAnnotation = "kubernetes.io/config.mirror"

// wanted says whether an annotation is one that podweir reads.
func wanted(name string) bool {
	return name == netconf.IngressAnnotation || name == netconf.EgressAnnotation ||
		strings.HasPrefix(name, netconf.AnnotationDomain)
}

// manifest is the part of a Pod of the API that is read. What it does not name
// is skipped and takes no memory.
type manifest struct {
	Metadata struct {
		Namespace       string            `json:"namespace"`
		Name            string            `json:"name"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
		DeletedAt       string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool `json:"hostNetwork"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
		PodIP string `json:"podIP"`
	} `json:"status"`
}

func (m *manifest) pod() Pod {
	p := Pod{
		Namespace: m.Metadata.Namespace, Name: m.Metadata.Name, UID: m.Metadata.UID, RuntimeUID: m.Metadata.UID,
		HostNetwork: m.Spec.HostNetwork, Started: m.Status.PodIP != "", Ending: m.Metadata.DeletedAt != "",
		Finished: m.Status.Phase == "Succeeded" || m.Status.Phase == "Failed",
	}
	if uid := m.Metadata.Annotations[mirrorAnnotation]; uid != "" {
		p.RuntimeUID = uid
	}
	for name, value := range m.Metadata.Annotations {
		if wanted(name) {
			if p.Annotations == nil {
				p.Annotations = make(map[string]string)
			}
			p.Annotations[name] = value
		}
	}
	return p
}
