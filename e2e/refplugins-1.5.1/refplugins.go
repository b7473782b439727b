// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package refplugins pins the reference bandwidth plugin of version 1.5.1, which
// shapes by HTB where later ones do by TBF; build it with `go build -o DIR/
// tool` in this directory. It speaks CNI up to version 1.0.0.
package refplugins
