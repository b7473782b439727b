// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"

	"github.com/podweir/podweir/tools/perfrig/record"
)

// where says on what kernels and what substrate a campaign was measured.
func where(m *record.Machine) string {
	if m.PeerKernel == "" {
		return fmt.Sprintf("Linux %s, %s", m.Kernel, m.Substrate)
	}
	return fmt.Sprintf("pods on Linux %s, clients on %s, %s", m.Kernel, m.PeerKernel, m.Substrate)
}

// Kernels says in a sentence's middle what where says.
func Kernels(m *record.Machine) string {
	if m.PeerKernel == "" {
		return fmt.Sprintf("Linux %s (%s)", m.Kernel, m.Substrate)
	}
	return fmt.Sprintf("pods on Linux %s and clients on %s (%s)", m.Kernel, m.PeerKernel, m.Substrate)
}

// Processors are those of which others took some: of an emulated machine, its
// host's, whose number is not recorded.
func Processors(m *record.Machine) string {
	if m.Substrate == record.SubstrateVM {
		return "the host's processors"
	}
	return fmt.Sprintf("the %d processors", m.CPUs)
}

// emulated is what a page of emulated machines says before its first number; ""
// of others.
func emulated(m *record.Machine) string {
	if m.Substrate != record.SubstrateVM {
		return ""
	}
	machines := "Pods and clients are in one emulated machine"
	if m.PeerKernel != "" {
		machines = "Pods are in one emulated machine and clients in another, joined by a virtual wire without segmentation offload"
	}
	return machines + " (QEMU without KVM): every packet and every process costs ten times and more what it does on the processor. " +
		"Absolute times and rates are those of the emulation; only ratios within one row, and between rows of one workload, say something. " +
		"A machine that its host lets wait gets its packets in a heap afterwards, so a worst second, too, may hold 2 % that were not sent in it. " +
		"The bars are those for real machines. " +
		"The usage that is sampled every second is that of the host's processes, hence of the emulators.\n\n"
}

// emulatedNote stands above each of its tables.
func emulatedNote(m *record.Machine) string {
	if m.Substrate != record.SubstrateVM {
		return ""
	}
	return "*Emulated: compare ratios only.* "
}

// ofHost is the number of the host's processors, where it is known.
func ofHost(m *record.Machine) string {
	if m.Substrate == record.SubstrateVM {
		return ""
	}
	return fmt.Sprintf(" of %d", m.CPUs)
}
