// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"slices"
	"strings"
)

// advice says what to do about a recorded failure, by a part of its text: the
// table of docs/reference/errors.md.
var advice = []struct{ part, do string }{
	{takeOff[0], "take that device off the pod, and CAP_NET_ADMIN from a pod that made it"},
	{takeOff[1], "recreate the pod, or take the limits off (podweir detach) and attach them again"},
	{takeOff[2], "podweir repair"},
	{takeOff[3], "recreate the pod"},
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

// takeOff are parts of failures of pods that are limited and have another device without a
// limit, or a record that cannot be read: what to do is all there is to it.
var takeOff = []string{"shares a device of the node with", "is another device now, which no limit covers", "another attachment let go of it", "unknown record"}

// adviceFor is what to do about failures, each thing once, and what follows
// then.
func (f *Facts) adviceFor(failures []string) string {
	var out []string
	enough := true
	for _, failure := range failures {
		enough = enough && slices.ContainsFunc(takeOff, func(part string) bool { return strings.Contains(failure, part) })
		do := "mend what the reason names (docs/reference/errors.md)"
		for _, a := range advice {
			if strings.Contains(failure, a.part) {
				do = a.do
				break
			}
		}
		if !slices.Contains(out, do) {
			out = append(out, do)
		}
	}
	if enough {
		return strings.Join(out, "; ")
	}
	return strings.Join(out, "; ") + "; " + f.afterwards()
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
