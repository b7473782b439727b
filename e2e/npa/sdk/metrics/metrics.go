// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package metrics stands in for one of a newer aws-ebpf-sdk-go, which no module proxy has.
package metrics

// ProgLoadEAGAINRetries is how often loading a program was tried again: the SDK that is
// there does not.
func ProgLoadEAGAINRetries() uint64 { return 0 }

// ProgLoadEAGAINExhausted is how often that did not help.
func ProgLoadEAGAINExhausted() uint64 { return 0 }
