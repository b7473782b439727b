// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package components pins the helm command, which the cluster of e2e/k8s
// runs; e2e/k8s/setup.sh builds them. It is a module of its own so that their
// dependencies stay out of podweir's.
package components
