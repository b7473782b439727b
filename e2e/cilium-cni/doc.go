// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package ciliumcni holds proofs with Cilium's own code: the manager of the
// directory of conflists, and the types of its configuration and its API. It is
// a module of its own, so that Cilium's requirements stay out of podweir's.
//
// "go mod tidy -e" keeps its go.mod: a plain one asks for what only tests of
// Cilium's need (github.com/cilium/statedb).
package ciliumcni
