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
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
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
	pinCeiling  = "ceiling"
	pinRedirect = "redirect"
)

// Link is a TCX link of a direction.
type Link string

// The links: that of the program, and that of the ceiling.
const (
	ProgramLink Link = "link"
	CeilingLink Link = "ceiling-link"
)

func pinPath(dir string, d shaping.Direction, object string) string {
	return filepath.Join(dir, d.String()+"-"+object)
}

// Objects are the loaded programs and maps of one direction.
type Objects struct {
	Program, Guard, Redirect, Ceiling *bpfcall.Program
	maps                              map[string]*bpfcall.Map
	// kept says that the maps are those that are pinned.
	kept bool
}

// Close releases the file descriptors; what is pinned or attached stays.
func (o *Objects) Close() {
	for _, p := range o.programs() {
		_ = p.Close()
	}
	for _, m := range o.maps {
		_ = m.Close()
	}
}

// Load loads the programs that the parameters name, with maps of their own
// filled from them and with new random hash keys. Nothing is pinned or
// attached yet: if the process ends, nothing stays. It is safe for concurrent
// use; privileged loads do not wait for each other in the kernel.
func Load(p *shaping.Params, subnets []netip.Prefix) (*Objects, error) {
	objs := &Objects{maps: make(map[string]*bpfcall.Map)}
	err := objs.load(programNames(p), len(subnets))
	if err == nil {
		err = objs.fill(p, subnets, 0)
	}
	if err != nil {
		objs.Close()
		return nil, err
	}
	return objs, nil
}

// Reload loads the programs of this build for a direction that runs those of
// another one. They take over the pinned maps, with all that is counted and known
// of flows, if their layout is still the same; else they get maps of their own, as
// by [Load]. Nothing changes yet.
func Reload(dir string, p *shaping.Params, subnets []netip.Prefix) (*Objects, error) {
	objs := &Objects{}
	err := objs.keepMaps(dir, p)
	if err == nil && !objs.kept {
		return Load(p, subnets)
	}
	if err == nil {
		err = objs.load(programNames(p), len(subnets))
	}
	if err != nil {
		objs.Close()
		return nil, err
	}
	return objs, nil
}

// keepMaps opens the pinned maps if the programs of this build can use them all.
func (o *Objects) keepMaps(dir string, p *shaping.Params) error {
	o.maps = make(map[string]*bpfcall.Map)
	for _, name := range programNames(p) {
		program, err := image.ProgramByName(name)
		if err != nil {
			return err
		}
		for _, name := range program.MapNames() {
			want, err := image.MapByName(name)
			if err != nil {
				return err
			}
			if o.maps[name] != nil {
				continue
			}
			m, err := openMap(dir, p.Direction, name)
			if errors.Is(err, os.ErrNotExist) {
				return o.leaveMaps()
			}
			if err != nil {
				return err
			}
			o.maps[name] = m
			if m.ValueBytes() != int(want.ValueBytes) {
				return o.leaveMaps()
			}
		}
	}
	cfg, err := readConfig(o.maps[mapConfig], o.maps[mapActive])
	if err == nil && cfg.AbiVersion != ABIVersion {
		return o.leaveMaps()
	}
	o.kept = err == nil
	return err
}

func (o *Objects) leaveMaps() error {
	o.Close()
	o.maps = nil
	return nil
}

// Replace pins what [Reload] loaded in the place of what is pinned, the program
// last, and gives the maps the parameters. What is attached stays: until the
// caller replaces that, too, it is of the build before.
func (o *Objects) Replace(dir string, p *shaping.Params, redirectIndex int) error {
	if err := updateConfig(o.maps[mapConfig], o.maps[mapActive], &p.Datapath, redirectIndex); err != nil {
		return err
	}
	if !o.kept {
		for name, m := range o.maps {
			if err := pinOver(m, pinPath(dir, p.Direction, name)); err != nil {
				return fmt.Errorf("map %s: %w", name, err)
			}
		}
	}
	for _, prog := range o.programs() {
		if err := pinOver(prog.Program, pinPath(dir, p.Direction, prog.pin)); err != nil {
			return fmt.Errorf("program %s: %w", prog.pin, err)
		}
	}
	return nil
}

// pinned is a program and the name of its pin.
type pinned struct {
	*bpfcall.Program
	pin string
}

// programs are those that there are, the one that is pinned last at the end.
func (o *Objects) programs() []pinned {
	all := []pinned{{o.Guard, pinGuard}, {o.Redirect, pinRedirect}, {o.Ceiling, pinCeiling}, {o.Program, pinProgram}}
	return slices.DeleteFunc(all, func(p pinned) bool { return p.Program == nil })
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
	if p.Ceiling {
		names = append(names, ceilingName(p))
	}
	return names
}

// The ceiling, and the one that looks up exempt subnets.
const (
	ceilingProgram = "pw_ceiling"
	ceilingSubnets = "pw_ceiling_x"
)

func ceilingName(p *shaping.Params) string {
	if p.Exempt {
		return ceilingSubnets
	}
	return ceilingProgram
}

// load loads the named programs and the maps that they use.
func (o *Objects) load(names []string, subnets int) error {
	for _, name := range names {
		p, err := image.ProgramByName(name)
		if err != nil {
			return err
		}
		if err := o.loadMaps(&p, subnets); err != nil {
			return err
		}
		prog, err := o.loadProgram(&p)
		if err != nil {
			return err
		}
		switch name {
		case GuardProgram:
			o.Guard = prog
		case RedirectProgram:
			o.Redirect = prog
		case ceilingProgram, ceilingSubnets:
			o.Ceiling = prog
		default:
			o.Program = prog
		}
	}
	return nil
}

func (o *Objects) loadMaps(p *image.Program, subnets int) error {
	for _, name := range p.MapNames() {
		if o.maps[name] != nil {
			continue
		}
		m, err := image.MapByName(name)
		if err != nil {
			return err
		}
		spec := bpfcall.MapSpec(m)
		if name == mapSubnets {
			spec.MaxEntries = uint32(max(subnets, 1))
		}
		made, err := bpfcall.NewMap(&spec)
		if err != nil {
			return err
		}
		o.maps[name] = made
	}
	return nil
}

func (o *Objects) loadProgram(p *image.Program) (*bpfcall.Program, error) {
	fds := make(map[string]int, len(o.maps))
	for name, m := range o.maps {
		fds[name] = m.FD()
	}
	instructions, err := p.Link(fds)
	if err != nil {
		return nil, err
	}
	return bpfcall.LoadProgram(p.Name, image.License, instructions)
}

// LoadRedirect loads the redirect to the device with this ifindex by itself,
// unpinned, for a self-test.
func LoadRedirect(ifindex int) (*Objects, error) {
	objs := &Objects{maps: make(map[string]*bpfcall.Map)}
	err := objs.load([]string{RedirectProgram}, 0)
	if err == nil {
		// Any policy will do, but a configuration without one is not valid.
		params := &shaping.Params{Datapath: shaping.Datapath{Policy: shaping.PolicyFlat}}
		err = objs.fill(params, nil, ifindex)
	}
	if err != nil {
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
	for _, p := range o.programs() {
		if err := p.Pin(pinPath(dir, d, p.pin)); err != nil {
			return fmt.Errorf("pin program %s in %s: %w", p.pin, dir, err)
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
func randomKeys(cfg *image.Config) error {
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
