// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/podweir/podweir/plugin/netconf"
)

// Pod is what the agent needs of a pod; the rest of it is not kept.
type Pod struct {
	Namespace, Name, UID string
	// Annotations are those that ask for a limit or say how to keep it.
	Annotations netconf.PodAnnotations
	// HostNetwork says that the pod has no interfaces of its own.
	HostNetwork bool
	// Address is the pod's first, "" as long as its network is not set up.
	Address string
	// Restarts is how often containers of the pod were started again, as all are in a new sandbox.
	Restarts int
	// Ending says that the pod is being deleted; it may run for a while yet.
	Ending bool
	// Finished says that it has ended and will not start again.
	Finished bool
	// Running says that a container of the pod runs.
	Running bool
	// RuntimeUID is the pod's UID as the container runtime knows it. A static
	// pod has another one than its mirror in the API.
	RuntimeUID string
}

// kubeletUID is the UID by which the kubelet tells of the pod, and `kubectl describe` looks for its Events.
func (p *Pod) kubeletUID() string { return cmp.Or(p.RuntimeUID, p.UID) }

// Started says that the pod's network is set up.
func (p *Pod) Started() bool { return p.Address != "" }

// Network is another text when the kubelet has made the pod another sandbox, whose address may be that of the first.
func (p *Pod) Network() string { return p.Address + " " + strconv.Itoa(p.Restarts) }

// Key is "namespace/name".
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// equal says whether nothing changed that the agent would act on.
func (p *Pod) equal(o *Pod) bool {
	return p.Namespace == o.Namespace && p.Name == o.Name && p.UID == o.UID && p.RuntimeUID == o.RuntimeUID &&
		p.HostNetwork == o.HostNetwork && p.Address == o.Address && p.Restarts == o.Restarts && p.Running == o.Running &&
		p.Finished == o.Finished && p.Ending == o.Ending && p.Annotations.Equal(&o.Annotations)
}

// mirrorAnnotation holds, on the mirror of a static pod, the UID that the
// kubelet gave to the pod (k8s.io/api/core/v1, MirrorPodAnnotationKey).
const mirrorAnnotation = "kubernetes.io/config.mirror"

// annotations are those of a manifest, as far as the agent reads them.
type annotations struct {
	netconf.PodAnnotations

	// mirror is the value of [mirrorAnnotation].
	mirror string
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *annotations) UnmarshalJSON(data []byte) error {
	var all map[string]netconf.Text
	err := json.Unmarshal(data, &all)
	*a = annotations{netconf.KeepAnnotations(all), string(all[mirrorAnnotation])}
	return err
}

// manifest is the part of a Pod of the API that is read. What it does not name
// is skipped and takes no memory.
type manifest struct {
	Metadata struct {
		Namespace       string      `json:"namespace"`
		Name            string      `json:"name"`
		UID             string      `json:"uid"`
		ResourceVersion string      `json:"resourceVersion"`
		Annotations     annotations `json:"annotations"`
		DeletedAt       string      `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool `json:"hostNetwork"`
	} `json:"spec"`
	Status podStatus `json:"status"`
}

type podStatus struct {
	Phase      string            `json:"phase"`
	PodIP      string            `json:"podIP"`
	Containers []containerStatus `json:"containerStatuses"`
	// Inits run first in a new sandbox, and may run long before one of Containers is started again.
	Inits []containerStatus `json:"initContainerStatuses"`
}

type containerStatus struct {
	Restarts int `json:"restartCount"`
	State    struct {
		Running *struct{} `json:"running"`
	} `json:"state"`
}

// watchEvent is one message of a watch: a pod, or an error, whose fields have other
// names but for status, which is a word there. It is decoded in place: a copy of the
// object would be as large as its author likes.
type watchEvent struct {
	Type   string `json:"type"`
	Object struct {
		manifest

		Code    int    `json:"code"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"object"`
}

// UnmarshalJSON implements [json.Unmarshaler]: anything but an object is nothing.
func (s *podStatus) UnmarshalJSON(data []byte) error {
	type plain podStatus
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	return json.Unmarshal(data, (*plain)(s))
}

func (m *manifest) pod() Pod {
	p := Pod{
		Namespace: m.Metadata.Namespace, Name: m.Metadata.Name, UID: m.Metadata.UID, RuntimeUID: m.Metadata.UID,
		HostNetwork: m.Spec.HostNetwork, Address: netconf.Cut(m.Status.PodIP), Ending: m.Metadata.DeletedAt != "",
		Finished:    m.Status.Phase == "Succeeded" || m.Status.Phase == "Failed",
		Annotations: m.Metadata.Annotations.PodAnnotations,
	}
	for _, all := range [][]containerStatus{m.Status.Containers, m.Status.Inits} {
		for _, c := range all {
			p.Restarts += c.Restarts
			p.Running = p.Running || c.State.Running != nil
		}
	}
	if uid := m.Metadata.Annotations.mirror; uid != "" {
		p.RuntimeUID = uid
	}
	return p
}
