// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package datapath loads, pins, attaches, updates, reads and detaches BPF
// programs, which all pods of a node share, and the slots of the slab, of which
// each direction of each interface has one; it needs CAP_BPF and CAP_NET_ADMIN
// and is the only user of bpf(2).
package datapath

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/datapath/kernelbtf"
)

// ABIVersion is the layout of the maps, PW_ABI_VERSION in bpf/lib/abi.h.
const ABIVersion = 13

// Names of the programs beside the classifiers, as in bpf/podweir.bpf.c.
const (
	GuardProgram    = "pw_guard"
	RedirectProgram = "pw_redirect"
	CeilingProgram  = "pw_ceiling"
)

// Names of the maps, as in bpf/lib/maps.h. Chunks are pinned as chunkPin and a number.
const (
	mapSlab    = "pw_slab"
	mapChunk   = "pw_chunk"
	mapScratch = "pw_scratch"
	mapHosts   = "pw_hosts"
	mapGroups  = "pw_groups"
	mapSubnets = "pw_subnets"
	mapLayout  = "pw_layout"
	chunkPin   = "slab-"
)

// shared are the maps that programs name.
var shared = []string{mapSlab, mapScratch, mapHosts, mapGroups, mapSubnets, mapLayout}

// Slab is what the pods of a node share, pinned in a directory of its own. It is
// made when it is first needed. It is not safe for concurrent use; several
// processes may have one each. Close it.
type Slab struct {
	dir  string
	root string
	maps map[string]*bpfcall.Map
	// groups are the mapped parts of the slab by their numbers, first is the one in which
	// a free slot is looked for first.
	groups   map[uint32]group
	first    uint32
	programs map[programKey]*bpfcall.Program
	// serving says of programs by their IDs whether they use the pinned maps.
	serving map[uint32]bool
}

type programKey struct {
	name    string
	carrier image.Carrier
}

// OpenSlab returns the slab whose pins are, or will be, in dir. Pins of interfaces
// are below root.
func OpenSlab(root, dir string) *Slab {
	return &Slab{
		root: root, dir: dir,
		maps: make(map[string]*bpfcall.Map), programs: make(map[programKey]*bpfcall.Program),
		groups: make(map[uint32]group), first: rand.Uint32N(chunkGroups()), serving: make(map[uint32]bool),
	}
}

// Close releases descriptors and memory; what is pinned or attached stays.
func (n *Slab) Close() {
	for _, m := range n.maps {
		_ = m.Close()
	}
	for _, p := range n.programs {
		_ = p.Close()
	}
	for _, g := range n.groups {
		_ = g.unmap()
	}
	n.maps, n.programs, n.groups = nil, nil, nil
}

// RemoveSlab removes the pins that a slab of another layout left in dir. The kernel
// frees what is attached nowhere.
func RemoveSlab(dir string) error {
	n := Slab{dir: dir}
	unlock, err := n.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the pins of another layout: %w", err)
	}
	return nil
}

// lockTimeout is how long another process may keep the node's lock. What is done under
// it takes milliseconds; the verifier of a slow machine takes seconds.
var lockTimeout = 20 * time.Second

// lock excludes other processes from the directory, which it makes.
func (n *Slab) lock() (unlock func(), err error) {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the node's pin directory: %w", err)
	}
	f, err := os.Open(n.dir)
	if err != nil {
		return nil, fmt.Errorf("open the node's pin directory: %w", err)
	}
	if err := flock(f); err != nil {
		return nil, fmt.Errorf("lock %s: %w", n.dir, err)
	}
	if !sameFile(f, n.dir) {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", n.dir, errRemoved)
	}
	return func() { _ = f.Close() }, nil
}

// flock locks an open directory, or closes it. Whoever waits gets the lock in the order of
// coming, which trying again and again would not give.
func flock(f *os.File) error {
	fd := int(f.Fd())
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return closeIf(f, err)
	}
	got := make(chan error, 1)
	go func() {
		err := unix.Flock(fd, unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(fd, unix.LOCK_EX)
		}
		got <- err
	}()
	select {
	case err := <-got:
		return closeIf(f, err)
	case <-time.After(lockTimeout):
		go func() { _ = errors.Join(<-got, f.Close()) }() // the lock may come yet
		return fmt.Errorf("%w for %v", errHeld, lockTimeout)
	}
}

func closeIf(f *os.File, err error) error {
	if err != nil {
		_ = f.Close()
	}
	return err
}

// errHeld: what holds the lock is stuck.
var errHeld = errors.New("held by another process")

// errRemoved: podweir is being uninstalled.
var errRemoved = errors.New("the pins are being removed")

// sameFile says whether the open directory is still the one at its path.
func sameFile(f *os.File, path string) bool {
	var open, there unix.Stat_t
	return unix.Fstat(int(f.Fd()), &open) == nil && unix.Stat(path, &there) == nil && open.Ino == there.Ino && open.Dev == there.Dev
}

// table opens a pinned map of the node's. An error that wraps [os.ErrNotExist]
// means that there is none.
func (n *Slab) table(name string) (*bpfcall.Map, error) {
	if m := n.maps[name]; m != nil {
		return m, nil
	}
	m, err := bpfcall.OpenMap(filepath.Join(n.dir, name))
	if err != nil {
		return nil, fmt.Errorf("open pinned map %s: %w", name, err)
	}
	n.maps[name] = m
	return m, nil
}

// made is table for whoever writes to a map: one that is not there is made. Programs over one whose
// pin was lost are replaced when they are attached: see [Slab.overPinned].
func (n *Slab) made(name string) (*bpfcall.Map, error) {
	m, err := n.table(name)
	if !errors.Is(err, os.ErrNotExist) {
		return m, err
	}
	unlock, err := n.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := n.makeTables(); err != nil {
		return nil, err
	}
	return n.table(name)
}

// makeTables makes the maps that are not there; the caller has the lock. A map whose
// values have another size is of another build, and its programs keep it: only the
// scratch space may be so.
func (n *Slab) makeTables() error {
	for _, name := range shared {
		want, err := image.MapByName(name)
		if err != nil {
			return err
		}
		m, err := n.table(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case m.ValueBytes() == int(want.ValueBytes):
			continue
		case name != mapScratch:
			return fmt.Errorf("map %s in %s is of another build: values of %d bytes, not %d", name, n.dir, m.ValueBytes(), want.ValueBytes)
		default:
			_ = m.Close()
			delete(n.maps, name)
		}
		made, err := makeMap(name)
		if err != nil {
			return err
		}
		if name == mapLayout {
			if err := writeLayout(made); err != nil {
				return err
			}
		}
		n.maps[name] = made
		if name == mapSlab {
			err = n.publishPinned()
		}
		if err == nil {
			err = pinOver(made, filepath.Join(n.dir, name))
		}
		if err != nil { // else the next attempt would take it for pinned
			delete(n.maps, name)
			return errors.Join(fmt.Errorf("map %s: %w", name, err), made.Close())
		}
	}
	return nil
}

// makeMap makes a map of the image.
func makeMap(name string) (*bpfcall.Map, error) {
	m, err := image.MapByName(name)
	if err != nil {
		return nil, err
	}
	spec := bpfcall.MapSpec{
		Name: m.Name, Type: m.Type, KeyBytes: m.KeyBytes, ValueBytes: m.ValueBytes, MaxEntries: m.MaxEntries, Flags: m.Flags,
	}
	if m.Inner != "" {
		like, err := makeMap(m.Inner)
		if err != nil {
			return nil, err
		}
		defer func() { _ = like.Close() }()
		spec.Inner = like.FD()
	}
	return bpfcall.NewMap(&spec)
}

// kernelTypes is where a kernel that was built with CONFIG_DEBUG_INFO_BTF tells its
// types.
const kernelTypes = "/sys/kernel/btf/vmlinux"

// writeLayout tells the programs how to find how much a device's queue holds.
func writeLayout(m *bpfcall.Map) error {
	var first uint32
	layout := kernelLayout()
	return m.Update(bytesOf(&first), bytesOf(&layout))
}

// kernelLayout is empty on a kernel that does not tell: the programs do without.
var kernelLayout = sync.OnceValue(readLayout)

func readLayout() (l image.Layout) {
	raw, err := os.ReadFile(kernelTypes)
	if err != nil {
		return l
	}
	types, err := kernelbtf.Parse(raw)
	if err != nil {
		return l
	}
	var stats, backlog uint32
	for _, of := range []struct {
		structure, member string
		offset            *uint32
	}{
		{"sk_buff", "dev", &l.SkbDev},
		{"net_device", "qdisc", &l.DevQdisc},
		{"Qdisc", "qstats", &stats},
		{"gnet_stats_queue", "backlog", &backlog},
	} {
		if *of.offset, err = types.Offset(of.structure, of.member); err != nil {
			return image.Layout{}
		}
	}
	l.QdiscBacklog = stats + backlog
	return l
}
