// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package ciliumagent pins the Cilium that rows of e2e/matrix run beside podweir;
// setup.sh builds it. It is a module of its own so that Cilium's dependencies
// stay out of podweir's.
package ciliumagent
