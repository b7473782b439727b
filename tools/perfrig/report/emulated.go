// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"

	"github.com/podweir/podweir/tools/perfrig/record"
)

// Kernel says in a sentence's middle on what kernel and substrate a campaign was
// measured.
func Kernel(m *record.Machine) string { return fmt.Sprintf("Linux %s (%s)", m.Kernel, m.Substrate) }

// Processors are those of which others took some: of an emulated machine, its
// host's, whose number is not recorded.
func Processors(m *record.Machine) string {
	if m.Substrate == record.SubstrateVM {
		return "the host's processors"
	}
	return fmt.Sprintf("the %d processors", m.CPUs)
}

// emulated is what is said of emulated machines before their first number; "" of
// others.
func emulated(m *record.Machine) string {
	if m.Substrate != record.SubstrateVM {
		return ""
	}
	return "Pods and clients are in an emulated machine (QEMU without KVM): every packet and every process costs ten times and more what it does on the processor. " +
		"Absolute times and rates are those of the emulation; only ratios within one row, and between rows of one workload, say something. " +
		"A machine that its host lets wait gets its packets in a heap afterwards, so a worst second, too, may hold 2 % that were not sent in it. " +
		"The bars are those for real machines. " +
		"The usage that is sampled every second is that of the host's processes, hence of the emulators.\n\n"
}
