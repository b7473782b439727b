// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package detect finds out what a node is: which CNI is in force, which others
// are installed, running or left over, and the settings that decide between
// profiles.
//
// It reads the node's files through an [fs.FS] and asks nothing of the kernel;
// what only the kernel knows comes in through [Live]. It never fails as a whole:
// what could not be found out is unknown, and [Node.Problems] says why.
package detect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

// Live is what files do not tell. Every method may fail.
type Live interface {
	// Programs lists the names of the BPF programs on the node's interfaces,
	// of whatever kind, as the kernel reports them.
	Programs(ctx context.Context) ([]string, error)
	// CiliumAPI returns the body of a GET request to the socket of Cilium's
	// agent, as /v1/healthz.
	CiliumAPI(ctx context.Context, resource string) ([]byte, error)
	// Runtime returns what the container runtime says that it is, in the form of
	// a node's status: "containerd://2.1.3".
	Runtime(ctx context.Context) (string, error)
	// RuntimeNetwork returns what the container runtime says of the CNI configuration
	// that it uses; nil if it says nothing of it, as CRI-O.
	RuntimeNetwork(ctx context.Context) (*RuntimeNetwork, error)
	// TCX says whether the kernel has it.
	TCX(ctx context.Context) (bool, error)
}

// RuntimeNetwork is the CNI configuration that a container runtime says that it uses,
// with paths as the node has them. It counts more than the runtime's files, which it
// may not have read again.
type RuntimeNetwork struct {
	// ConfDir has the conflists, BinDirs the plugins.
	ConfDir string   `json:"PluginConfDir"`
	BinDirs []string `json:"PluginDirs"`
	// MaxConfNum is how many networks it loads, 0 for all.
	MaxConfNum int64 `json:"PluginMaxConfNum"`
}

// Options say where things are that have no fixed place. The zero value looks
// for them.
type Options struct {
	// ConfDir is the directory of conflists, BinDir that of plugins, both below
	// the root.
	ConfDir, BinDir string
	// Runtime is what a node's status says, as "containerd://2.1.3"; empty to
	// ask the runtime, and else to look at its process.
	Runtime string
	// ToldRuntime is what the operator said when podweir was installed, in the same
	// form: it counts where the runtime itself does not answer.
	ToldRuntime string
	// Conf is what was read of the directory of conflists already; nil to read it.
	Conf *conflist.Dir
	// Live may be nil.
	Live Live
	// Before is what was known of Cilium at the last look, nil to read [CiliumSaid].
	Before *Cilium
}

// Node is what was found out.
type Node struct {
	// Config is what the container runtime's files say.
	Config RuntimeConfig
	// ConfDir and BinDirs are below the root.
	ConfDir string
	BinDirs []string
	// Conf is nil if the directory cannot be read.
	Conf *conflist.Dir
	// Profile belongs to the CNI in force, nil without one. Assumed says that a
	// fact is missing and the careful member of its family is taken; Why says
	// how it was found.
	Profile *profiles.Profile
	Assumed bool
	Why     string
	// Running are the families of CNIs that run.
	Running []string
	// Facts are what distinguished the profiles.
	Facts map[string]string
	// Exclusive says whether Cilium renames the files of others, ExclusiveWhy
	// from what that is known. It is unknown only where Cilium runs or is in the chain.
	Exclusive    profiles.Answer
	ExclusiveWhy string
	Cilium       Cilium
	Calico       Calico
	Runtime      conflist.Runtime
	Kernel       Kernel
	// TCX says whether the kernel has it.
	TCX       profiles.Answer
	Processes []Process
	// Sockets are the Unix sockets that a program listens on; nil if not known.
	Sockets []string
	// Devices are the names of the node's interfaces; nil if not known.
	Devices []string
	// Problems are what could not be read, and why.
	Problems []error
}

// reader collects a Node.
type reader struct {
	root fs.FS
	opts Options
	node *Node
}

// Read finds out what it can. Reading a node with 110 pods takes below 100 ms:
// most of it goes to /proc.
func Read(ctx context.Context, root fs.FS, opts Options) *Node {
	r := &reader{root: root, opts: opts, node: &Node{Facts: map[string]string{}}}
	n := r.node
	n.Processes = serving(root, r.processes())
	n.Sockets = r.sockets()
	n.Devices = r.names("sys/class/net")
	n.Kernel = r.kernel()
	n.TCX = r.tcx(ctx)
	n.Runtime = r.runtime(ctx)
	r.directories(ctx)
	n.Conf = r.conf()
	programs := r.programs(ctx)
	r.distribution()
	r.cilium(ctx)
	r.exclusive()
	r.policyAgent(programs)
	r.dataplane(programs)
	r.calico()
	r.chainFacts()
	n.Profile, n.Assumed, n.Why = r.profile()
	if n.Profile != nil {
		n.Profile = n.Profile.ForRelease(n.Cilium.Version)
		// Cilium has its own policy, and is left over beside it at most.
		if n.Facts[profiles.FactFelixQueues] == profiles.Yes.String() && n.Profile.Family != "cilium" {
			n.Profile = n.Profile.BesideFelix()
		}
	}
	n.Running = r.running(programs)
	return n
}

// NRISocket is where containerd and CRI-O listen for NRI plugins while NRI is on.
const NRISocket = "/var/run/nri/nri.sock"

// Situation is what the node says of the choice of the delivery: all but what may be
// written, and what the profile's commands contain.
func (n *Node) Situation() conflist.Situation {
	s := conflist.Situation{
		Profile: n.Profile, Runtime: n.Runtime, Exclusive: n.Exclusive, NRI: n.Config.NRI,
		Several: n.Networks() != 1,
	}
	if listens := n.Listens(NRISocket); listens != profiles.Unknown && n.SeesNode() {
		s.NRI = listens
	}
	if s.Profile == nil {
		s.Profile = profiles.Other()
	}
	s.Original = n.Conf.Network()
	return s
}

// conf returns what was read already if it is of the directory that is used.
func (r *reader) conf() *conflist.Dir {
	if c := r.opts.Conf; c != nil && c.Path == r.node.ConfDir {
		return c
	}
	conf, err := r.node.ReadConf(r.root)
	if err != nil {
		r.problem(err)
	}
	return conf
}

// ReadConf reads the directory of conflists as the node's runtime does.
func (n *Node) ReadConf(root fs.FS) (*conflist.Dir, error) {
	conf, err := conflist.ReadDir(root, n.ConfDir)
	if n.Runtime.Name == "cri-o" || n.Config.Network != "" {
		conf.ForCRIO(n.Config.Network, func(plugin string) bool { return n.Binary(root, plugin) != "" })
	}
	return conf, err
}

func (r *reader) problem(err error) { r.node.Problems = append(r.node.Problems, err) }

// exists says whether a file is there; unknown if that cannot be seen.
func (r *reader) exists(name string) profiles.Answer {
	_, err := fs.Stat(r.root, name)
	switch {
	case err == nil:
		return profiles.Yes
	case errors.Is(err, fs.ErrNotExist):
		return profiles.No
	default:
		return profiles.Unknown
	}
}

// names lists a directory, nil if it cannot be read.
func (r *reader) names(dir string) []string {
	entries, err := fs.ReadDir(r.root, dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.problem(err)
		}
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// text reads a small file, "" if it cannot be read.
func (r *reader) text(name string) string {
	b, err := fs.ReadFile(r.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (r *reader) tcx(ctx context.Context) profiles.Answer {
	if r.opts.Live == nil {
		return profiles.Unknown
	}
	has, err := r.opts.Live.TCX(ctx)
	if err != nil {
		r.problem(fmt.Errorf("ask the kernel for TCX: %w", err))
		return profiles.Unknown
	}
	return profiles.Is(has)
}

func (r *reader) programs(ctx context.Context) []string {
	if r.opts.Live == nil {
		return nil
	}
	names, err := r.opts.Live.Programs(ctx)
	if err != nil {
		r.problem(err)
		return nil
	}
	if names == nil {
		names = []string{}
	}
	return names
}

// k3sConfDir and k3sBinDir are k3s's own (profiles: k3s-flannel).
const (
	defaultConfDir = "etc/cni/net.d"
	defaultBinDir  = "opt/cni/bin"
	k3sConfDir     = "var/lib/rancher/k3s/agent/etc/cni/net.d"
)

// directories finds the directories of conflists and plugins: as given, else as
// the runtime says, else as its files say, else where a distribution has them.
func (r *reader) directories(ctx context.Context) {
	n := r.node
	n.ConfDir, n.BinDirs = clean(r.opts.ConfDir), nil
	n.Config = ReadRuntimeConfig(r.root, n.Processes)
	for _, err := range n.Config.Problems {
		r.problem(err)
	}
	if r.opts.Live != nil {
		said, err := r.opts.Live.RuntimeNetwork(ctx)
		if err != nil {
			r.problem(fmt.Errorf("ask the container runtime for its CNI configuration: %w", err))
		}
		n.Config.says(said)
	}
	switch {
	case n.ConfDir != "":
	case n.Config.ConfDir != "":
		n.ConfDir = n.Config.ConfDir
	case r.exists(k3sConfDir) == profiles.Yes:
		n.ConfDir = k3sConfDir
	default:
		n.ConfDir = defaultConfDir
	}
	switch {
	case r.opts.BinDir != "":
		n.BinDirs = []string{clean(r.opts.BinDir)}
		return
	case len(n.Config.BinDirs) > 0:
		n.BinDirs = n.Config.BinDirs
		return
	}
	n.BinDirs = []string{defaultBinDir}
	for _, p := range profiles.All() {
		for _, dir := range p.Conflist.BinDirs {
			if r.exists(dir) == profiles.Yes {
				n.BinDirs = append(n.BinDirs, dir)
			}
		}
	}
}

// clean makes a path relative to the root.
func clean(dir string) string {
	if dir == "" {
		return ""
	}
	return strings.TrimPrefix(path.Clean("/"+dir), "/")
}
