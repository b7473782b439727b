// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package cilium brings a real Cilium into the cluster of e2e/k8s: agent,
// operator, cilium-cni and Helm chart of a version that e2e/cilium
// builds.
package cilium
