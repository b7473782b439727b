// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package mark is how a test says itself when and where it runs, with the reason.
// A test without a mark runs in "make test" on this machine's kernel, beside other
// tests, and on the emulated kernels from "make gate" on.
//
// A mark is a statement of the test itself or of a case of it, and its reason is a
// literal: tools/tiers reads both from the source, selects whole tests by them and
// writes the table of docs/contributing/testing.md. Cases are skipped when they run.
package mark

import (
	"os"
	"testing"
)

// Environment of a test that the Makefile or the rig of kernels started.
const (
	// EnvTier names the tier: test, gate or all. Without it every test runs.
	EnvTier = "PODWEIR_TIER"
	// EnvGuest is set on a kernel that is not this machine's own.
	EnvGuest = "PODWEIR_GUEST"
)

// Tiers that leave tests out, and the one that does not.
const (
	TierTest = "test"
	TierGate = "gate"
	TierAll  = "all"
)

// SkipPrefix begins the message of a test that is skipped by a mark. It is a decision
// and not the lack of a feature, so no kernel owes the test.
const SkipPrefix = "SKIP-MARK: "

// Slow leaves a test out of "make quick", which is "go test -short".
func Slow(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		skip(tb, "slow", why)
	}
}

// Nightly leaves a test out of every tier but "make test-all".
func Nightly(tb testing.TB, why string) {
	tb.Helper()
	if leavesOut() {
		skip(tb, "nightly", why)
	}
}

// NightlyKernels leaves a test out on other kernels than this machine's, but in "make
// test-all".
func NightlyKernels(tb testing.TB, why string) {
	tb.Helper()
	if leavesOut() && os.Getenv(EnvGuest) != "" {
		skip(tb, "nightly on other kernels", why)
	}
}

// Timed says that a test judges times or rates: it runs beside no other step and no
// other package, and on no emulated processor unless it is marked with Kernels, too. It
// skips nothing.
func Timed(testing.TB, string) {}

// Kernels says that a test runs on the emulated kernels of "make test", too, or, if it
// is Timed, alone on those of "make gate". It skips nothing.
func Kernels(testing.TB, string) {}

// EveryTest puts a mark on every privileged test of a package that says nothing of
// that kind itself, neither of the test nor of cases:
//
//	var _ = mark.EveryTest(mark.NightlyKernels, "hardly anything depends on the kernel")
//
// It works for whole tests that tools/tiers selects, and skips nothing when run by hand.
func EveryTest(func(testing.TB, string), string) bool { return true }

// leavesOut says whether the tier leaves out tests or cases.
func leavesOut() bool {
	tier := os.Getenv(EnvTier)
	return tier != "" && tier != TierAll
}

func skip(tb testing.TB, kind, why string) {
	tb.Helper()
	tb.Skip(SkipPrefix + kind + ": " + why)
}
