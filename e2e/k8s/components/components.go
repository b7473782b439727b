// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package components pins etcd, containerd and Helm 3, which the cluster of e2e/k8s runs,
// and Helm 4, with which tools/charttest tests the chart, too. Kubernetes is a module of
// its own because it replaces its staging modules. e2e/k8s/setup.sh builds them. Their
// dependencies stay out of podweir's.
package components
