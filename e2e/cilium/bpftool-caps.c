// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Copyright Authors of podweir

// Debian's bpftool asks libcap whether it has CAP_BPF and CAP_PERFMON, and stops
// when it has not. The nodes of e2e/k8s have SYS_ADMIN instead, which the kernel
// takes for both, because older Docker does not know their names. Loaded into
// bpftool, this answers every such question with yes; the kernel still decides.

int cap_get_flag(void *caps, int capability, int flag, int *value)
{
	*value = 1;
	return 0;
}
