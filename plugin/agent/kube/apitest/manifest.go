// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apitest

import (
	"strconv"
	"strings"
)

// manifest is the pod as an API server writes it.
func (k *kept) manifest() map[string]any {
	phase := k.Phase
	if phase == "" {
		phase = "Running"
	}
	// Half of the weight is where kubectl keeps what was applied, the rest in
	// the containers.
	half := k.Fat / 2
	annotations := map[string]any{}
	if half > 0 {
		annotations["kubectl.kubernetes.io/last-applied-configuration"] = strings.Repeat("x", half)
	}
	for name, value := range k.Annotations {
		annotations[name] = value
	}
	env := []any{}
	for i := range half / 100 {
		env = append(env, map[string]any{"name": "VARIABLE_" + strconv.Itoa(i), "value": strings.Repeat("v", 60)})
	}
	metadata := map[string]any{
		"namespace": k.Namespace, "name": k.Name, "uid": k.UID,
		"resourceVersion": strconv.Itoa(k.version), "annotations": annotations,
		"managedFields": []any{map[string]any{"manager": "kubelet", "fieldsV1": map[string]any{"f:metadata": map[string]any{}}}},
	}
	if k.Deleting {
		metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
	}
	return map[string]any{
		"kind": "Pod", "apiVersion": "v1", "metadata": metadata,
		"spec": map[string]any{
			"nodeName": k.Node, "hostNetwork": k.HostNetwork,
			"containers": []any{map[string]any{"name": "c", "image": "registry.example/c@sha256:0", "env": env}},
		},
		"status": map[string]any{"phase": phase, "podIP": k.PodIP, "hostIP": "192.0.2.1"},
	}
}
