// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package components pins what the cluster of e2e/k8s is made of, with Helm 3 and Helm 4,
// and the reference CNI plugins, which the lab runs, too. e2e/k8s/setup.sh and
// "make refplugins" build them. It is a module of its own so that their dependencies stay
// out of podweir's. kubernetes-*.mod pins an older Kubernetes.
package components
