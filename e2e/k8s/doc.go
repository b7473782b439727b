// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package k8s proves podweir in a real Kubernetes cluster: its chart, installed
// by Helm into an API server, its image run by containerd and kubelets, and pods
// that get their networks from them.
//
// It is a module of its own, so that `go test ./...` at the top does not start
// clusters. docs/contributing/kubernetes-e2e.md says how to run it.
package k8s
