// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package refruntimes pins the runsc that TestPrivilegedGVisor of e2e/coexist runs; "make runsc"
// builds it. It is a module of its own so that gVisor's dependencies stay out of podweir's.
package refruntimes
