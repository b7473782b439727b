// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package refplugins pins the reference CNI plugins that the lab runs; build
// them with `go build -o DIR/ tool` in this directory. It is a module of its
// own so that their dependencies stay out of podweir's.
package refplugins
