// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

// Process is a process of the node.
type Process struct {
	PID string
	// Name is what the kernel calls it: 15 characters at most.
	Name string
	// Args is its command line.
	Args []string
}

// Kernel is what the node's files say of the kernel.
type Kernel struct {
	// Release is as uname -r gives it.
	Release string
	// Lockdown is none, integrity or confidentiality; empty if not known.
	Lockdown string
	// BPFFS says whether a bpf file system is mounted at /sys/fs/bpf, ReadOnly
	// whether that cannot be written.
	BPFFS, ReadOnly profiles.Answer
	// HasBTF says whether the kernel describes its types.
	HasBTF profiles.Answer
}

// interesting are the processes whose command line is read.
var interesting = []string{"controller", "containerd", "crio", "cri-dockerd", "kubelet", "kubelite", "k3s-server", "k3s-agent", "cilium-agent", "podweir", "calico"}

// ofNode are the programs that run a node. One in a nested PID namespace belongs to another node
// (kind) or to a pod (Docker in Docker).
var ofNode = []string{"containerd", "crio", "cri-dockerd", "kubelet", "kubelite", "k3s-server", "k3s-agent"}

// processes lists the node's processes, nil if they cannot be seen: without the
// node's PID namespace /proc has only our own.
func (r *reader) processes() []Process {
	var out []Process
	for _, pid := range r.names("proc") {
		if !isNumber(pid) {
			continue
		}
		name := r.text("proc/" + pid + "/comm")
		if name == "" || r.zombie(pid) || slices.Contains(ofNode, name) && r.nested(pid) {
			continue
		}
		p := Process{PID: pid, Name: name}
		if slices.Contains(interesting, name) {
			p.Args = strings.Split(strings.TrimRight(r.text("proc/"+pid+"/cmdline"), "\x00"), "\x00")
		}
		out = append(out, p)
	}
	return out
}

// zombie says that a process has ended and nobody has waited for it. Its name, which is in
// parentheses before the state, may have any characters (proc_pid_stat(5)).
func (r *reader) zombie(pid string) bool {
	stat := r.text("proc/" + pid + "/stat")
	return strings.HasPrefix(stat[strings.LastIndex(stat, ")")+1:], " Z")
}

// nested says that a process is in a PID namespace below that of the node.
func (r *reader) nested(pid string) bool {
	for line := range strings.Lines(r.text("proc/" + pid + "/status")) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(pids)) > 1
		}
	}
	return false
}

// Process returns the first process with this name, nil if none is seen.
func (n *Node) Process(name string) *Process {
	for i := range n.Processes {
		if n.Processes[i].Name == name {
			return &n.Processes[i]
		}
	}
	return nil
}

// Agents names the agents of podweir that run on the node: their pods as
// namespace/name, or their processes where they are in none.
func (n *Node) Agents() []string {
	var out []string
	for _, p := range n.Processes {
		if p.Name != "podweir" || !slices.Contains(p.Args, "agent") {
			continue
		}
		name := "process " + p.PID
		for _, arg := range p.Args {
			if pod, ok := strings.CutPrefix(arg, "--pod="); ok {
				name = path.Dir(pod) // without the UID
			}
		}
		out = append(out, name)
	}
	return out
}

// SeesNode says whether the node's own processes can be seen: a kubelet (or
// what holds one) or a container runtime is among them.
func (n *Node) SeesNode() bool {
	return slices.ContainsFunc(n.Processes, func(p Process) bool {
		return p.Name == "kubelet" || p.Name == "containerd" || p.Name == "crio" ||
			strings.HasPrefix(p.Name, "k3s") || strings.HasPrefix(p.Name, "rke2")
	})
}

// listening is the flag of a socket that accepts connections (SO_ACCEPTCON,
// __SO_ACCEPTCON in linux/net.h).
const listening = "00010000"

// sockets lists the Unix sockets that are listened on, of the network namespace
// of the first process.
func (r *reader) sockets() []string {
	b, err := fs.ReadFile(r.root, "proc/1/net/unix")
	if err != nil {
		r.problem(err)
		return nil
	}
	out := []string{}
	for line := range strings.Lines(string(b)) {
		// Num RefCount Protocol Flags Type St Inode Path
		f := strings.Fields(line)
		if len(f) == 8 && f[3] == listening {
			out = append(out, f[7])
		}
	}
	return out
}

// Listens says whether a program listens on this socket. /var/run and /run are
// one.
func (n *Node) Listens(socket string) profiles.Answer {
	if n.Sockets == nil {
		return profiles.Unknown
	}
	short := func(s string) string { return strings.TrimPrefix(s, "/var") }
	return profiles.Is(slices.ContainsFunc(n.Sockets, func(s string) bool { return short(s) == short(socket) }))
}

func (r *reader) kernel() Kernel {
	k := Kernel{
		Release: r.text("proc/sys/kernel/osrelease"),
		HasBTF:  r.exists("sys/kernel/btf/vmlinux"),
	}
	// "none [integrity] confidentiality": the one in force is in brackets.
	if _, after, ok := strings.Cut(r.text("sys/kernel/security/lockdown"), "["); ok {
		k.Lockdown, _, _ = strings.Cut(after, "]")
	}
	k.BPFFS, k.ReadOnly = BPFFS(r.root)
	return k
}

// BPFFS says whether a bpf file system is mounted at /sys/fs/bpf of the node below root, and
// whether that cannot be written.
func BPFFS(root fs.FS) (mounted, readOnly profiles.Answer) {
	mounts, err := fs.ReadFile(root, "proc/1/mounts")
	if err != nil || len(mounts) == 0 {
		return profiles.Unknown, profiles.Unknown
	}
	mounted = profiles.No
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) >= 4 && f[1] == "/sys/fs/bpf" && f[2] == "bpf" {
			mounted, readOnly = profiles.Yes, profiles.Is(slices.Contains(strings.Split(f[3], ","), "ro"))
		}
	}
	return mounted, readOnly
}

// runtime finds the container runtime, its version if it was given or the runtime
// says it, and the libcni that is built into the running binary.
func (r *reader) runtime(ctx context.Context) conflist.Runtime {
	var out conflist.Runtime
	given := r.opts.Runtime
	if given == "" && r.opts.Live != nil {
		var err error
		if given, err = r.opts.Live.Runtime(ctx); err != nil {
			r.problem(fmt.Errorf("ask the container runtime for its version: %w", err))
		}
	}
	if given == "" {
		given = r.opts.ToldRuntime
	}
	if given != "" {
		var err error
		if out, err = conflist.ParseRuntime(given); err != nil {
			r.problem(err)
		}
	}
	for _, c := range []struct{ process, name string }{
		{"cri-dockerd", "docker"}, {"containerd", "containerd"}, {"crio", "cri-o"}, {"k3s-server", "containerd"}, {"k3s-agent", "containerd"},
	} {
		p := r.node.Process(c.process)
		if p == nil || out.Name != "" && out.Name != c.name {
			continue
		}
		out.Name = c.name
		out.Libcni = libcniVersion(r.buildInfo("proc/" + p.PID + "/exe"))
		break
	}
	return out
}

const libcniModule = "github.com/containernetworking/cni"

// buildInfo is what a Go binary says of its build, empty if it says nothing.
func (r *reader) buildInfo(exe string) *debug.BuildInfo {
	none := &debug.BuildInfo{}
	f, err := r.root.Open(exe)
	if err != nil {
		return none
	}
	defer func() { _ = f.Close() }()
	at, ok := f.(io.ReaderAt)
	if !ok {
		return none
	}
	info, err := buildinfo.Read(at)
	if err != nil {
		return none
	}
	return info
}

func libcniVersion(info *debug.BuildInfo) string {
	for _, m := range info.Deps {
		if m.Path != libcniModule {
			continue
		}
		if m.Replace != nil {
			return m.Replace.Version
		}
		return m.Version
	}
	return ""
}

// Binary looks for a plugin in the directories of plugins and returns its path
// below the root, "" if it is in none.
func (n *Node) Binary(root fs.FS, plugin string) string {
	for _, dir := range n.BinDirs {
		name := path.Join(dir, plugin)
		if info, err := fs.Stat(root, name); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}
