// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Carrier is how a program learns the slot of a packet.
type Carrier = image.Carrier

// ByClassID is the carrier of filters.
const ByClassID = image.ByClassID

// CarrierOf is the carrier of a program attached by TCX on one side for a direction. At the host side the device tells; a device inside a pod has the
// number of many others, so a program there serves one slot.
func CarrierOf(s terms.Side, d terms.Direction, slot uint32) Carrier {
	switch {
	case s != terms.SideHost:
		return Carrier(slot)
	case d == terms.Egress:
		return image.ByHostEgress
	default:
		return image.ByHostIngress
	}
}

// Program returns a program of this build, loaded once for all pods and pinned, or
// for one slot, if that is the carrier, and not pinned. It stays open as long as
// the node. A program of another build that is pinned in its place gives way; what
// it is attached to keeps it.
func (n *Slab) Program(name string, carrier Carrier) (*bpfcall.Program, error) {
	p, err := image.ProgramByName(name)
	if err != nil {
		return nil, err
	}
	if !p.Carried() {
		carrier = ByClassID
	}
	key := programKey{name, carrier}
	if prog := n.programs[key]; prog != nil {
		return prog, nil
	}
	pin := n.programPin(key)
	prog, err := n.pinned(&p, carrier, pin)
	if err == nil && prog == nil {
		prog, err = n.loadProgram(&p, carrier, pin)
	}
	if err != nil {
		return nil, err
	}
	n.programs[key] = prog
	return prog, nil
}

// programPin is where a program is pinned, "" if it is not.
func (n *Slab) programPin(key programKey) string {
	switch key.carrier {
	case ByClassID:
		return filepath.Join(n.dir, key.name)
	case image.ByHostEgress:
		return filepath.Join(n.dir, key.name+"-host-egress")
	case image.ByHostIngress:
		return filepath.Join(n.dir, key.name+"-host-ingress")
	default:
		return ""
	}
}

// pinned opens what is pinned if it is the program of this build; nil if not.
func (n *Slab) pinned(p *image.Program, carrier Carrier, pin string) (*bpfcall.Program, error) {
	if pin == "" {
		return nil, nil
	}
	prog, err := bpfcall.OpenProgram(pin)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned program: %w", err)
	}
	current, err := n.current(prog, p, carrier)
	if current {
		return prog, nil
	}
	_ = prog.Close()
	return nil, err
}

// current says whether a program is the one of this build over the maps that are
// pinned.
func (n *Slab) current(prog *bpfcall.Program, p *image.Program, carrier Carrier) (bool, error) {
	info, err := prog.Info()
	if err != nil || !p.HasTag(info.Tag, carrier) {
		return false, err
	}
	return n.overPinned(p, &info)
}

// overPinned says whether a program uses the maps that are pinned, which its tag does not tell: a map
// whose pin was lost lives as long as programs use it, and whoever writes to the pinned one does
// not reach them. What programs keep nothing in may be another one.
func (n *Slab) overPinned(p *image.Program, info *bpfcall.ProgramInfo) (bool, error) {
	for _, name := range p.MapNames() {
		if name == mapScratch || name == mapLayout {
			continue
		}
		m, err := n.table(name)
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Uses(m.ID()) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

func (n *Slab) loadProgram(p *image.Program, carrier Carrier, pin string) (*bpfcall.Program, error) {
	unlock, err := n.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Another process may have been faster.
	if prog, err := n.pinned(p, carrier, pin); prog != nil || err != nil {
		return prog, err
	}
	if err := n.makeTables(); err != nil {
		return nil, err
	}
	prog, err := load(p, carrier, n.maps)
	if err != nil || pin == "" {
		return prog, err
	}
	if err := pinOver(prog, pin); err != nil {
		_ = prog.Close()
		return nil, fmt.Errorf("program %s: %w", p.Name, err)
	}
	return prog, nil
}

func load(p *image.Program, carrier Carrier, maps map[string]*bpfcall.Map) (*bpfcall.Program, error) {
	fds := make(map[string]int, len(maps))
	for name, m := range maps {
		fds[name] = m.FD()
	}
	instructions, err := p.Link(fds, carrier)
	if err != nil {
		return nil, err
	}
	return loadEither(instructions, func(text []byte) (*bpfcall.Program, error) {
		return bpfcall.LoadProgram(p.Name, image.License, text)
	})
}

// loadEither loads a program, or what remains of it without reading the kernel's memory.
// The first attempt's error is returned.
func loadEither(text []byte, load func([]byte) (*bpfcall.Program, error)) (*bpfcall.Program, error) {
	prog, err := load(text)
	if err == nil {
		return prog, nil
	}
	if without := image.Unsighted(text); !bytes.Equal(without, text) {
		if prog, second := load(without); second == nil {
			return prog, nil
		}
	}
	return nil, err
}

// Current says whether a program with this name and tag is the one of this build
// with that carrier.
func Current(name string, tag [8]byte, carrier Carrier) bool {
	p, err := image.ProgramByName(name)
	if err != nil {
		return false
	}
	if !p.Carried() {
		carrier = ByClassID
	}
	return p.HasTag(tag, carrier)
}

// Serves says whether a program that is attached somewhere uses this node's maps, or none.
func (n *Slab) Serves(id uint32, name string) bool {
	p, err := image.ProgramByName(name)
	if err != nil || !p.Carried() {
		return err == nil
	}
	if serves, known := n.serving[id]; known {
		return serves
	}
	info := programInfo(id)
	serves, err := n.overPinned(&p, &info)
	n.serving[id] = err == nil && serves
	return n.serving[id]
}

// Steers says whether a program of this name steers packets from an egress hook into
// the queue of the same device.
func Steers(name string) bool {
	return name == shaping.ProgramBand.String()
}

// namePrefix starts the names of podweir's programs and maps. Anybody may use it: what
// has it is looked at, and what has it not is another party's.
const namePrefix = "pw_"

// Ours says whether a program that is attached somewhere is podweir's, of whatever
// build and whatever became of its pins: it uses maps as every program of podweir's
// does that limits anything, or has the tag of a program of this build.
func Ours(id uint32, name string, tag [8]byte) bool {
	if !strings.HasPrefix(name, namePrefix) {
		return false
	}
	return usesOurMaps(id) || slices.ContainsFunc([]Carrier{ByClassID, image.ByHostEgress, image.ByHostIngress}, func(c Carrier) bool {
		return Current(name, tag, c)
	})
}

// ownMaps are those of podweir's programs.
var ownMaps = []string{mapSlab, mapHosts, mapScratch}

func usesOurMaps(id uint32) bool {
	info := programInfo(id) // no map if it is gone
	for _, m := range info.MapIDs {
		if m == 0 {
			break
		}
		if name, err := bpfcall.MapName(m); err == nil && slices.Contains(ownMaps, name) {
			return true
		}
	}
	return false
}

// ReadAnswers finds out of the programs of others what each does with every packet, where
// its instructions show that. It takes a few calls for each.
func ReadAnswers(programs []attach.HookProgram) {
	for i := range programs {
		if p := &programs[i]; !p.Ours && p.ProgramID != 0 {
			p.Answer = verdicts(p.ProgramID).Answer(p.Kind, p.Kind == terms.HookKindTCX || p.Direct, p.Match)
		}
	}
}

// ReadXDP returns an XDP program by its ID, with what it does with every packet; nil if the ID is 0.
func ReadXDP(id uint32) *attach.HookProgram {
	if id == 0 {
		return nil
	}
	info := programInfo(id)
	return &attach.HookProgram{Hook: terms.HookIngress, ProgramID: id, Name: "XDP " + info.Name, Answer: verdicts(id).XDP()}
}

// verdicts is [judge.AnyVerdict] for a program that cannot be read.
func verdicts(id uint32) judge.Verdicts {
	p, err := bpfcall.ProgramByID(id)
	if err != nil {
		return judge.AnyVerdict
	}
	defer func() { _ = p.Close() }()
	code, err := p.Code(judge.MaxCodeBytes)
	if err != nil {
		return judge.AnyVerdict
	}
	return judge.ReadVerdicts(code)
}

// programInfo is zero if there is no program with this id any more.
func programInfo(id uint32) bpfcall.ProgramInfo {
	p, err := bpfcall.ProgramByID(id)
	if err != nil {
		return bpfcall.ProgramInfo{}
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	if err != nil {
		return bpfcall.ProgramInfo{}
	}
	return info
}
