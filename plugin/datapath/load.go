// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package datapath loads, pins, attaches, updates, reads and detaches the BPF
// programs of a pod; it needs CAP_BPF and CAP_NET_ADMIN and is the only user
// of bpf(2).
package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/plugin/shaping"
)

// Names of the programs beside the classifiers, as in bpf/podweir.bpf.c.
const (
	GuardProgram    = "pw_guard"
	RedirectProgram = "pw_redirect"
)

// Pins of one direction are <direction>-<object> in the directory of the
// interface. The program is pinned last: where it is, everything is.
const (
	pinProgram  = "program"
	pinGuard    = "guard"
	pinRedirect = "redirect"
	pinLink     = "link"
)

func pinPath(dir string, d shaping.Direction, object string) string {
	return filepath.Join(dir, d.String()+"-"+object)
}

// Objects are the loaded programs and maps of one direction.
type Objects struct {
	Program, Guard, Redirect *ebpf.Program
	maps                     map[string]*ebpf.Map
}

// Close releases the file descriptors; what is pinned or attached stays.
func (o *Objects) Close() {
	for _, p := range []*ebpf.Program{o.Program, o.Guard, o.Redirect} {
		if p != nil {
			_ = p.Close()
		}
	}
	for _, m := range o.maps {
		_ = m.Close()
	}
}

// collection is the parsed object: parsing it is most of what a load costs
// outside the kernel, and ADD loads it once for each direction.
var collection = sync.OnceValues(func() (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadPodweir()
	if err != nil {
		return nil, fmt.Errorf("parse the BPF object: %w", err)
	}
	for _, m := range spec.Maps {
		// Type information of maps serves dumps by other tools only; without
		// it the kernel keeps no BTF for each pod.
		m.Key, m.Value = nil, nil
	}
	for _, p := range spec.Programs {
		p.Instructions = withoutDebugInfo(p.Instructions)
	}
	return spec, nil
})

// Warm begins to parse the object beside what the caller does next: it is the
// longest step of an ADD that needs nothing to be known.
func Warm() { go func() { _, _ = collection() }() }

// withoutDebugInfo drops line and function information, which the kernel would
// parse, check and keep for every pod.
func withoutDebugInfo(in asm.Instructions) asm.Instructions {
	out := make(asm.Instructions, len(in))
	for i, ins := range in {
		plain := asm.Instruction{
			OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Offset: ins.Offset, Constant: ins.Constant,
		}
		if ref := ins.Reference(); ref != "" {
			plain = plain.WithReference(ref)
		}
		if sym := ins.Symbol(); sym != "" {
			plain = plain.WithSymbol(sym)
		}
		out[i] = plain
	}
	return out
}

// Load loads the programs that the parameters name, with maps of their own
// filled from them and with new random hash keys. Nothing is pinned or
// attached yet: if the process ends, nothing stays. It is safe for concurrent
// use; privileged loads do not wait for each other in the kernel.
func Load(p *shaping.Params, subnets []netip.Prefix) (*Objects, error) {
	spec, err := collection()
	if err != nil {
		return nil, err
	}
	coll, err := load(spec, programNames(p), len(subnets))
	if err != nil {
		return nil, err
	}
	objs := &Objects{
		Program: coll.Programs[p.ProgramName()], Guard: coll.Programs[GuardProgram],
		Redirect: coll.Programs[RedirectProgram], maps: coll.Maps,
	}
	if err := objs.fill(p, subnets, 0); err != nil {
		objs.Close()
		return nil, err
	}
	return objs, nil
}

// Pin pins the objects of a direction in dir, the program last, and replaces
// what an interrupted run left there. redirectIndex is the ifindex of the ifb,
// 0 if there is none. On error nothing stays pinned.
func (o *Objects) Pin(dir string, p *shaping.Params, redirectIndex int) error {
	err := Unpin(dir, p.Direction)
	if err == nil && redirectIndex != 0 {
		err = updateConfig(o.maps[mapConfig], o.maps[mapActive], &p.Datapath, redirectIndex)
	}
	if err == nil {
		err = o.pin(dir, p.Direction)
	}
	if err != nil {
		return errors.Join(err, Unpin(dir, p.Direction))
	}
	return nil
}

func programNames(p *shaping.Params) []string {
	var names []string
	if name := p.ProgramName(); name != "" {
		names = append(names, name)
	}
	if p.Guard {
		names = append(names, GuardProgram)
	}
	if p.Redirect {
		names = append(names, RedirectProgram)
	}
	return names
}

// load loads the named programs and the maps that they use.
func load(spec *ebpf.CollectionSpec, names []string, subnets int) (*ebpf.Collection, error) {
	part := &ebpf.CollectionSpec{
		Programs: make(map[string]*ebpf.ProgramSpec), Maps: make(map[string]*ebpf.MapSpec),
		ByteOrder: spec.ByteOrder,
	}
	for _, name := range names {
		p := spec.Programs[name]
		if p == nil {
			return nil, fmt.Errorf("no program %q in the BPF object", name)
		}
		part.Programs[name] = p
		for _, ins := range p.Instructions {
			if m := spec.Maps[ins.Reference()]; m != nil && ins.IsLoadFromMap() {
				part.Maps[ins.Reference()] = m
			}
		}
	}
	if m := part.Maps[mapSubnets]; m != nil {
		m = m.Copy()
		m.MaxEntries = uint32(max(subnets, 1))
		part.Maps[mapSubnets] = m
	}
	quiet := ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogDisabled: true}}
	coll, err := ebpf.NewCollectionWithOptions(part, quiet)
	if err == nil {
		return coll, nil
	}
	// Try first, explain afterwards: a verifier log costs more than a load.
	if coll, err = ebpf.NewCollection(part); err != nil {
		return nil, fmt.Errorf("load programs %v: %w", names, err)
	}
	return coll, nil
}

// LoadRedirect loads the redirect to the device with this ifindex by itself,
// unpinned, for a self-test.
func LoadRedirect(ifindex int) (*Objects, error) {
	spec, err := collection()
	if err != nil {
		return nil, err
	}
	coll, err := load(spec, []string{RedirectProgram}, 0)
	if err != nil {
		return nil, err
	}
	objs := &Objects{Redirect: coll.Programs[RedirectProgram], maps: coll.Maps}
	// Any policy will do, but a configuration without one is not valid.
	params := &shaping.Params{Datapath: shaping.Datapath{Policy: shaping.PolicyFlat}}
	if err := objs.fill(params, nil, ifindex); err != nil {
		objs.Close()
		return nil, err
	}
	return objs, nil
}

func (o *Objects) pin(dir string, d shaping.Direction) error {
	for name, m := range o.maps {
		if err := m.Pin(pinPath(dir, d, name)); err != nil {
			return fmt.Errorf("pin map %s in %s: %w", name, dir, err)
		}
	}
	for _, p := range []struct {
		name string
		prog *ebpf.Program
	}{{pinGuard, o.Guard}, {pinRedirect, o.Redirect}, {pinProgram, o.Program}} {
		if p.prog == nil {
			continue
		}
		if err := p.prog.Pin(pinPath(dir, d, p.name)); err != nil {
			return fmt.Errorf("pin program %s in %s: %w", p.name, dir, err)
		}
	}
	return nil
}

// Unpin removes every pin of a direction; with the last reference the kernel
// frees what was pinned, and a link detaches. What is absent is no error.
func Unpin(dir string, d shaping.Direction) error {
	pins, err := filepath.Glob(pinPath(dir, d, "*"))
	if err != nil {
		return fmt.Errorf("list pins of %v in %s: %w", d, dir, err)
	}
	for _, p := range pins {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unpin: %w", err)
		}
	}
	return nil
}

// randomKeys draws hash keys; a flow's place in the sketch cannot be guessed
// without them.
func randomKeys(cfg *bpf.PodweirPwConfig) error {
	// getrandom(2) gives up to 256 bytes in one piece; crypto/rand would add a
	// generator and its self-tests to every ADD.
	b := make([]byte, unsafe.Sizeof(cfg.HashKeys))
	if _, err := unix.Getrandom(b, 0); err != nil {
		return fmt.Errorf("draw hash keys: %w", err)
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &cfg.HashKeys); err != nil {
		return fmt.Errorf("read hash keys: %w", err)
	}
	return nil
}
