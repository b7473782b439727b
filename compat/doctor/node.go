// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

func checkVisible(f *Facts) Outcome {
	var miss []string
	if !f.Node.SeesNode() {
		miss = append(miss, "no kubelet and no container runtime among the processes")
	}
	if f.Node.Sockets == nil {
		miss = append(miss, "listening sockets cannot be read")
	}
	if len(miss) > 0 {
		return breaks(strings.Join(miss, "; "), "the node's processes and sockets", "podweir doctor --root /host, with hostPID and hostNetwork")
	}
	return holds(fmt.Sprintf("%d processes", len(f.Node.Processes)))
}

func checkRuntime(f *Facts) Outcome {
	r := f.Node.Runtime
	if r.Name == "" {
		return unknown("no container runtime is seen")
	}
	if r.ReadsDropIns() == profiles.Unknown {
		return breaks(r.String()+": whether it reads drop-in directories is not known", "a known version",
			"podweir doctor --runtime "+r.Name+"://VERSION")
	}
	return holds(fmt.Sprintf("%v, reads drop-in directories: %v", r, r.ReadsDropIns()))
}

func checkProfile(f *Facts) Outcome {
	switch {
	case f.Node.Profile == nil:
		return skip("no network is in force")
	case f.Profile.Family == "other":
		return breaks(f.Node.Why, "a CNI with a profile", "report it with the conflist; until then podweir attaches where it does no harm")
	case f.Node.Assumed:
		return breaks("assumed to be "+f.Profile.Title+": "+f.Node.Why, "facts that decide", f.adviceForFacts()+"; the careful profile is in use meanwhile")
	}
	return holds(f.Profile.Title, f.Node.Why)
}

// adviceForFacts says how to get a fact that decides, by what keeps it from
// the doctor.
func (f *Facts) adviceForFacts() string {
	switch {
	case f.Profile.Family == "cilium" && !f.Node.Cilium.API:
		return "let the doctor ask Cilium's agent (PW401)"
	case !f.Node.SeesNode() || f.Node.Sockets == nil:
		return "let the doctor see the node (PW107)"
	}
	return "nothing on the node reports it: report it, with the output of podweir doctor -o json"
}

// checkKernel goes by the processor that this program runs on, which is the node's.
func checkKernel(f *Facts) Outcome { return kernelOn(f.Node.Kernel.Release, runtime.GOARCH) }

func kernelOn(release, arch string) Outcome {
	const fix = "take a newer node image"
	switch {
	case profiles.AtLeast(release, 5, 15) == profiles.Unknown:
		return unknown(fmt.Sprintf("the release of the kernel is %q", release))
	case profiles.AtLeast(release, 5, 15) == profiles.No: // the oldest that is probed for
		return breaks("Linux "+release, "Linux 5.15 or newer", fix)
	case arch == "arm64" && profiles.AtLeast(release, 5, 18) == profiles.No:
		// The BPF compiler of arm64 takes atomic operations that return a value since
		// Linux 5.18 (arch/arm64/net/bpf_jit_comp.c, emit_lse_atomic); podweir's programs
		// have them. Distributions' kernels interpret nothing that is not compiled.
		return breaks("Linux "+release+" on arm64, which does not compile programs with atomic operations that return a value",
			"Linux 5.18 or newer on arm64", fix)
	case profiles.AtLeast(release, 6, 1) == profiles.No:
		return warns("Linux "+release, "Linux 6.1 or newer, which are tested", fix)
	}
	return holds("Linux " + release)
}

func checkBPFFS(f *Facts) Outcome {
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

func checkQueueReadable(f *Facts) Outcome {
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

func checkQueues(f *Facts) Outcome {
	if f.FeaturesErr != nil {
		return unknown(f.FeaturesErr.Error())
	}
	var have, miss []string
	for _, kind := range []string{"tbf", "prio", "htb"} {
		if f.Features[kind] {
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

func checkMaxConfNum(f *Facts) Outcome {
	n := f.Node.Networks()
	own := len(f.Node.Conf.Own()) > 0
	const fix = "set max_conf_num = 1 (of a handler: cni_max_conf_num), and restart containerd"
	switch {
	case n == 1:
		return holds("one network is loaded")
	case own:
		return breaks(fmt.Sprintf("max_conf_num is %d, and podweir's file is beside its original", n), "1, or another delivery",
			"podweir install, which takes another delivery; or: "+fix)
	}
	return warns(fmt.Sprintf("max_conf_num is %d: only interfaces of the first network are limited from their start", n), "1", fix)
}

func checkNRI(f *Facts) Outcome {
	listens := f.Node.Listens(detect.NRISocket)
	switch {
	case f.Choice.Delivery != profiles.NRI:
		return skip("the delivery is " + string(f.Choice.Delivery))
	case listens == profiles.Yes:
		return holds("the runtime listens on " + detect.NRISocket)
	case f.Node.Config.NRI == profiles.No:
		return breaks("the runtime's configuration has NRI off", "NRI on", "disable = false for io.containerd.nri.v1.nri, or enable_nri = true for CRI-O, and restart the runtime")
	case listens == profiles.No:
		return breaks("no program listens on "+detect.NRISocket, "NRI on", "switch NRI on in the runtime's configuration, and restart it")
	}
	return unknown("whether the runtime has NRI on")
}

// dropInCapabilities are the capabilities of podweir's drop-in in the network in
// force, and its file; "" if there is none that can be read.
func (f *Facts) dropInCapabilities(network string) (raw []byte, file string) {
	for _, c := range f.Node.Conf.DropIns[network] {
		if c.Type != conflist.Type {
			continue
		}
		name := path.Join(f.Node.ConfDir, network, c.Name)
		if b, err := conflist.ReadFile(f.Root, name); err == nil {
			return b, "/" + name
		}
	}
	return nil, ""
}

// mountedWith returns the directories on a file system that is mounted with an option. It follows
// links. With noexec nothing can be run, whatever the mode of the file.
func mountedWith(root fs.FS, option string, dirs ...string) []string {
	b, err := fs.ReadFile(root, "proc/1/mounts")
	if err != nil {
		return nil
	}
	var out []string
	for _, dir := range dirs {
		best, has := "", false
		at := "/" + unlinked(root, dir)
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 4 {
				continue
			}
			mount := strings.ReplaceAll(f[1], `\040`, " ")
			// A later mount at the same place covers the earlier one.
			if below(at, mount) && len(mount) >= len(best) {
				best, has = mount, slices.Contains(strings.Split(f[3], ","), option)
			}
		}
		if has {
			out = append(out, dir)
		}
	}
	return out
}

// unlinked resolves the symbolic links in a path of the node: /opt may lead to /var/opt, which
// is another mount.
func unlinked(root fs.FS, dir string) (done string) {
	const most = 40
	rest := strings.Split(dir, "/")
	for links := 0; len(rest) > 0; {
		next := path.Join("/", done, rest[0])[1:]
		rest = rest[1:]
		target, err := fs.ReadLink(root, next)
		if err != nil || links == most {
			done = next
			continue
		}
		links++
		if path.IsAbs(target) {
			done = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done
}

func below(name, dir string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir+"/")
}

func checkSandboxed(f *Facts) Outcome {
	config := &f.Node.Config
	redirect := config.Handlers(detect.Sandboxed.Redirects)
	gvisor := config.Handlers(func(s detect.Sandboxed) bool { return s == detect.GVisor })
	runtimes := f.Node.Runtimes()
	if runtimes.Redirects && len(redirect) == 0 {
		redirect = []string{"the plugin tc-redirect-tap of the chain"}
	}
	if len(redirect)+len(gvisor) == 0 {
		return holds("no handler of Kata or gVisor is configured")
	}
	keys, file := f.entryKeys()
	if file == "" { // the agent attaches by what it would write
		keys = map[string]any{}
		profiles.Fill(f.Profile, runtimes, keys)
	}
	if len(redirect) > 0 && !leavesIngressQdisc(keys) {
		const expected = "podHook tcx"
		who := "pods of " + strings.Join(redirect, ", ") + " do not start if they have a limit: podweir's clsact qdisc is on their device"
		if runtimes.TCX == profiles.No {
			return breaks(who+", and the kernel has no TCX", expected+", which needs Linux 6.6", "use Linux 6.6 or newer, or keep limited pods off these handlers")
		}
		return breaks(who, expected, "leave podHook at auto, or write podHook=tcx into an entry that is made by hand")
	}
	if len(gvisor) > 0 {
		if finding, bad := f.readAhead(strings.Join(gvisor, ", "), keys); bad {
			return finding
		}
	}
	return holds("Kata or gVisor is configured, and podweir attaches where limits hold for their pods")
}

// leavesIngressQdisc says that these keys have podweir make no clsact qdisc on the pod's
// device.
func leavesIngressQdisc(keys map[string]any) bool {
	if profiles.Chosen(keys, "podHook") == "tcx" {
		return true
	}
	tcx := terms.ModeTCXPodSide.String()
	return profiles.Chosen(keys, "egressMode", "mode") == tcx && profiles.Chosen(keys, "ingressMode", "mode") == tcx
}

// readAhead says why gVisor's pods have no limit of ingress.
func (f *Facts) readAhead(handlers string, keys map[string]any) (finding Outcome, bad bool) {
	const expected = "ingress at the host side"
	fix := "leave ingressMode, ingressQueue and ingressPlace to auto"
	if f.Profile.Bypass != profiles.No {
		fix = "use a routing by which packets pass the host side, or put these pods on other nodes"
	}
	if profiles.InPod(f.Profile, keys) {
		return breaks("the ingress limit of pods of "+handlers+" does not hold: it is in the pod", expected, fix), true
	}
	if f.Profile.Bypass == profiles.Yes {
		return breaks("the ingress limit of pods of "+handlers+" does not hold: packets go past the host side", expected, fix), true
	}
	var inPod []string
	for i := range f.Attached {
		a := &f.Attached[i]
		if a.Direction.Is == terms.Ingress && a.Place != terms.PlaceHost && !a.Observed() {
			inPod = append(inPod, a.Pod)
		}
	}
	if len(inPod) > 0 {
		return warns("if they are of "+handlers+", these pods have no limit of ingress, since it is in the pod: "+shorten(inPod), expected, fix, inPod...), true
	}
	return Outcome{}, false
}
