// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package cilium pins the Cilium that rows of e2e/matrix run beside podweir, which
// setup.sh builds, and holds proofs with Cilium's own code: the manager of the directory
// of conflists, and the types of its configuration and its API. It is a module of its
// own, so that Cilium's requirements stay out of podweir's.
//
// "go mod tidy -e" keeps its go.mod: a plain one asks for a module that the proxy does
// not have (setup.sh has the one constant that is used of it). 1.15.mod pins the release
// that upgrades come from.
package cilium
