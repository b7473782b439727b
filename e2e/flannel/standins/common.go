// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package common stands in for a module that module proxies do not have. One
// backend of flannel imports it, which the matrix never uses.
package common

// StringPtr is what flannel calls.
func StringPtr(s string) *string { return new(s) }

// StringPtrs is what flannel calls.
func StringPtrs(_ []string) []*string { return nil }

// BoolPtr is what flannel calls.
func BoolPtr(b bool) *bool { return new(b) }
