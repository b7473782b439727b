// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

// The oldest kernel that is probed for; 6.1 is the oldest that is tested.
const (
	oldestMajor, oldestMinor       = 5, 15
	testedMajor, testedMinor       = 6, 1
	oldestKernel, testedKernelText = "5.15", "6.1"
	// The BPF compiler of arm64 takes atomic operations that return a value since
	// Linux 5.18 (arch/arm64/net/bpf_jit_comp.c, emit_lse_atomic); podweir's programs
	// have them. Distributions' kernels interpret nothing that is not compiled.
	oldestMinorARM  = 18
	oldestKernelARM = "5.18"
)

// checkKernel goes by the processor that this program runs on, which is the node's.
func checkKernel(f *Facts) Finding { return kernelOn(f.Node.Kernel.Release, runtime.GOARCH) }

func kernelOn(release, arch string) Finding {
	major, minor, ok := kernelVersion(release)
	switch {
	case !ok:
		return unknown(fmt.Sprintf("the release of the kernel is %q", release))
	case major < oldestMajor || major == oldestMajor && minor < oldestMinor:
		return breaks("Linux "+release, "Linux "+oldestKernel+" or newer", "take a newer node image")
	case arch == "arm64" && major == oldestMajor && minor < oldestMinorARM:
		return breaks("Linux "+release+" on arm64, which does not compile programs with atomic operations that return a value",
			"Linux "+oldestKernelARM+" or newer on arm64", "take a newer node image")
	case major < testedMajor || major == testedMajor && minor < testedMinor:
		return warns("Linux "+release, "Linux "+testedKernelText+" or newer, which are tested", "take a newer node image")
	}
	return holds("Linux " + release)
}

func kernelVersion(release string) (major, minor int, ok bool) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	digits := strings.IndexFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		parts[1] = parts[1][:digits]
	}
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	return major, minor, errMajor == nil && errMinor == nil
}

func checkBPFFS(f *Facts) Finding {
	const fix = "mount -t bpf bpf /sys/fs/bpf"
	switch k := f.Node.Kernel; {
	case k.BPFFS == profiles.Unknown:
		return unknown("the mounts of the node cannot be read")
	case k.BPFFS == profiles.No:
		return breaks("nothing is mounted at /sys/fs/bpf", "a bpf file system", fix)
	case k.ReadOnly == profiles.Yes:
		return breaks("/sys/fs/bpf is mounted read-only", "a bpf file system that can be written", "mount -o remount,rw /sys/fs/bpf")
	}
	return holds("bpf at /sys/fs/bpf")
}

// lockdownMost is the mode in which no program may read the kernel's memory
// (include/linux/security.h, LOCKDOWN_BPF_READ_KERNEL).
const lockdownMost = "confidentiality"

func checkQueueReadable(f *Facts) Finding {
	k := &f.Node.Kernel
	switch {
	case k.Lockdown == lockdownMost:
		return breaks("lockdown "+k.Lockdown+": programs may not read the kernel's memory", "none or integrity", "boot with lockdown=integrity")
	case k.HasBTF == profiles.Yes:
		return holds("the kernel has its types (BTF)")
	case k.HasBTF == profiles.No:
		return breaks("the kernel has no types (BTF)", "/sys/kernel/btf/vmlinux", "use a kernel with CONFIG_DEBUG_INFO_BTF")
	}
	return unknown("whether the kernel has its types (BTF)")
}

func checkTCX(f *Facts) Finding {
	if f.FeaturesErr != nil {
		return unknown(f.FeaturesErr.Error())
	}
	switch f.Features.TCX {
	case profiles.Yes:
		return holds("the kernel has TCX")
	case profiles.No:
		asked := f.asksForHook()
		switch {
		case !f.Profile.Holds(terms.HookKindClsact, terms.HookIngress) && !f.Profile.Holds(terms.HookKindTCX, terms.HookIngress):
			return holds("the kernel has no TCX, and no other program is on the pods' hooks")
		case asked == "":
			return holds("the kernel has no TCX, and nothing requests it: podweir uses only its own queues")
		}
		return breaks("the kernel has no TCX, "+f.Profile.Title+" is on the pods' hooks, and podweir's entry has "+asked, "Linux 6.6 or newer",
			"leave mode and queue to auto: podweir then uses only its own queues")
	case profiles.Unknown:
	}
	return unknown("whether the kernel has TCX")
}

// asksForHook is what podweir's entry asks for by name that shares a hook with
// others, "" if it leaves mode and queue to podweir.
func (f *Facts) asksForHook() string {
	keys, _ := f.entryKeys()
	for _, key := range []string{"mode", "egressMode", "ingressMode"} {
		if mode, _ := keys[key].(string); strings.HasPrefix(mode, "tcx-") {
			return key + " " + mode
		}
	}
	for _, key := range []string{"queue", "egressQueue", "ingressQueue"} {
		if queue, _ := keys[key].(string); queue == "none" {
			return key + " " + queue
		}
	}
	return ""
}

func checkQueues(f *Facts) Finding {
	if f.FeaturesErr != nil {
		return unknown(f.FeaturesErr.Error())
	}
	var have, miss []string
	for _, kind := range []string{"tbf", "prio", "htb"} {
		if f.Features.Queues[kind] == profiles.Yes {
			have = append(have, kind)
		} else {
			miss = append(miss, kind)
		}
	}
	if slices.Contains(have, "tbf") {
		return holds("has "+strings.Join(have, ", "), "has not: "+strings.Join(miss, ", "))
	}
	return breaks("the kernel has none of "+strings.Join(miss, ", "), "tbf", "modprobe sch_tbf")
}
