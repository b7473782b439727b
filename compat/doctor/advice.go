// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

// advice says what to do about a failure, by a part of its text: the
// table of docs/reference/errors.md.
var advice = []struct{ part, do string }{
	{unknownRecord, "recreate the pod"},
	{"not on a BPF file system", "mount -t bpf bpf /sys/fs/bpf"},
	{"read-only file system", "mount -o remount,rw /sys/fs/bpf"},
	{"root qdisc is not podweir's", "decide who shapes the device: replaceQdisc: true gives it to podweir (PW505)"},
	{"ends the chain for every packet", "ask the owner of that program to let packets on (-1), or take it off (PW506)"},
	{"hook is held by another party", "leave the mode to auto, take the other side or Linux 6.6, or have its owner take it off"},
	{"netfilter ingress chain", "leave mode and queue to auto: podweir then polices"},
	{"prevResult is missing", "put podweir-cni behind the plugin that makes the interface (PW202)"},
	{"this kernel has no ", "leave mode, queue and place to auto, or take a kernel that has it; PW106 says what it has"},
	{"annotation ", "kubectl annotate --overwrite pod: correct the annotation that the reason names"},
	{"runtimeConfig", "kubectl annotate --overwrite pod: correct the kubernetes.io bandwidth annotation"},
	{"is not accepted", "correct what the reason names: a default of podweir's, or an annotation of the pod"},
	{"cannot allocate memory", "raise the memory limit of the cgroup that executes podweir-cni (containerd's, or the agent's pod's), or free memory on the node: the kernel refused it"},
	{"the record of why is damaged", "remove the file that the reason names"},
	{"permission", "give podweir the right that the reason names"},
	{"ABI version", "recreate the pod: another release has shaped it"},
	{"held by another process", "look at the process: another call for the same pod ran for 30 s"},
}

// unknownRecord is part of the cause where a record cannot be read, of a pod that is limited:
// what to do is all there is to it.
const unknownRecord = "unknown record"

// cureFor is what to do about troubles, each thing once, and what follows then.
func (f *Facts) cureFor(bad []terms.Trouble) string {
	var out []string
	then := ""
	for i := range bad {
		do := bad[i].Cure
		if fault := bad[i].Fault; fault == terms.FaultUnshaped || fault == terms.FaultUnread {
			do = "mend what the reason names (docs/reference/errors.md)"
			cause := strings.Join(bad[i].Causes, "; ")
			for _, a := range advice {
				if strings.Contains(cause, a.part) {
					do = a.do
					break
				}
			}
			if !strings.Contains(cause, unknownRecord) {
				then = "; " + f.afterwards()
			}
		}
		if !slices.Contains(out, do) {
			out = append(out, do)
		}
	}
	return strings.Join(out, "; ") + then
}

// afterwards says how pods get their limit when what kept it from them is
// mended.
func (f *Facts) afterwards() string {
	if len(f.Node.Agents()) > 0 {
		return "then the agent sets the limit by itself, within a minute: the pod need not be recreated"
	}
	return "then recreate the pod, or run podweir agent, which limits pods that run"
}

// podOf is the pod of a container as libcni's cache names it, "" if it does not.
func (f *Facts) podOf(container string) string {
	for _, s := range f.Sandboxes {
		if s.ContainerID == container && container != "" {
			return s.Pod
		}
	}
	return ""
}
