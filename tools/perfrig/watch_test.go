// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestForeign: process 100 is ours, 101 its child, 102 the child's; 200 and 300 are
// others', 300 began in between; 50 and 51 are the kernel's.
func TestForeign(t *testing.T) {
	before := &reading{processes: map[int]process{
		1: {0, 1}, 100: {1, 1}, 101: {100, 0}, 102: {101, 1}, 200: {1, 3}, kthreadd: {0, 0}, 50: {kthreadd, 7}, 51: {kthreadd, 1},
	}}
	now := &reading{processes: map[int]process{
		1: {0, 1}, 100: {1, 2}, 101: {100, 0}, 102: {101, 9}, 200: {1, 5}, 300: {200, 1}, kthreadd: {0, 0}, 50: {kthreadd, 7}, 51: {kthreadd, 5},
	}}
	must.Be(t, "seconds of others: two of 200 and one of 300", 3, now.foreign(before, 100))
	must.Be(t, "seconds of others where all are descendants", 0, now.foreign(before, 1))
}
