// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package testutil

import (
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// A machine of vmrig under KVM has the host's processor by name, and keeps time.
func TestEmulated(t *testing.T) {
	for name, tt := range map[string]struct {
		cpuinfo string
		want    bool
	}{
		"vmrig, emulated":      {"vendor_id\t: AuthenticAMD\nmodel name\t: QEMU TCG CPU version 2.5+\n", true},
		"vmrig under KVM":      {"vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n", false},
		"another virtual host": {"vendor_id\t: GenuineIntel\nmodel name\t: QEMU Virtual CPU version 2.5+\n", false},
		"arm64":                {"processor\t: 0\nBogoMIPS\t: 50.00\n", false},
	} {
		must.Be(t, name+": emulated()", tt.want, emulated(tt.cpuinfo))
	}
}
