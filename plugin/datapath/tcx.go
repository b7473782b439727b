// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/terms"
)

// Link is a TCX link of a direction.
type Link string

// The links: that of the program, that of the ceiling, and that of the guard.
const (
	ProgramLink Link = "link"
	CeilingLink Link = "ceiling-link"
	GuardLink   Link = "guard-link"
)

func tcxType(h terms.Hook) (uint32, error) {
	switch h {
	case terms.HookEgress:
		return bpfcall.TCXEgress, nil
	case terms.HookIngress:
		return bpfcall.TCXIngress, nil
	default:
		return 0, fmt.Errorf("no TCX attach type for hook %v", h)
	}
}

// AttachTCX attaches a program of the direction's at the head of a TCX hook of the
// device with this index in the caller's network namespace, pins the link and
// reads the order back. A link that the direction has at the head already gets the
// program in one step, and one that has it, of another attachment, becomes this one's, too. Any other gives
// way to a new link, which waits for RCU under RTNL, 11 to 16 ms on Linux 6.18, and is in force before,
// unless it has the same program.
func AttachTCX(dir string, d terms.Direction, name Link, prog *bpfcall.Program, ifindex int, h terms.Hook) error {
	at, err := tcxType(h)
	if err != nil {
		return err
	}
	pin := pinPath(dir, d, string(name))
	updated, err := updateHead(pin, prog, ifindex, at)
	if err != nil {
		return fmt.Errorf("tcx %v of ifindex %d: %w", h, ifindex, err)
	}
	if updated {
		return verifyHead(prog, ifindex, h, at)
	}
	info, err := prog.Info()
	if err != nil {
		return err
	}
	l, err := attachHead(prog, ifindex, at)
	if errors.Is(err, unix.EEXIST) {
		l, err = linkAtHead(info.ID, ifindex, at)
	}
	if l == nil && err == nil {
		// The same program is there, and not at the head: two would charge twice.
		if err := detachNow(pin); err != nil {
			return err
		}
		if err := DetachLost(ifindex, h, func(other *attach.HookProgram) bool { return other.Name != info.Name }); err != nil {
			return err
		}
		l, err = attachWithin(prog, ifindex, at)
	}
	if err != nil {
		return fmt.Errorf("tcx %v of ifindex %d: %w", h, ifindex, err)
	}
	defer func() { _ = l.Close() }()
	if err := pinLink(l, pin); err != nil {
		return err
	}
	// A link whose pin was lost would charge once more.
	if err := DetachLost(ifindex, h, func(other *attach.HookProgram) bool { return other.Name != info.Name || other.ProgramID == info.ID }); err != nil {
		return err
	}
	return verifyHead(prog, ifindex, h, at)
}

// pinLink pins a link and detaches the one that was pinned there, unless it is the same: a program that was before it
// on the hook may have left since updateHead looked.
func pinLink(l *bpfcall.Link, pin string) error {
	old, err := bpfcall.OpenLink(pin)
	if err == nil {
		same, err := l.Same(old)
		if err = errors.Join(err, old.Close()); same || err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	next := pin + pinNext
	if err := errors.Join(unpin(next), l.Pin(next)); err != nil { // an interrupted run may have pinned this very link
		return fmt.Errorf("pin tcx link %s: %w", pin, err)
	}
	if err := detachNow(pin); err != nil {
		return err
	}
	if err := os.Rename(next, pin); err != nil {
		return fmt.Errorf("pin tcx link %s: %w", pin, err)
	}
	return nil
}

// updateHead gives the program to a pinned link whose program is the first on a
// hook, so that no packet passes without one.
func updateHead(pin string, prog *bpfcall.Program, ifindex int, at uint32) (updated bool, err error) {
	l, err := bpfcall.OpenLink(pin)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = l.Close() }()
	id, err := l.ProgramID()
	if err != nil {
		return false, err
	}
	list, err := bpfcall.QueryTCX(ifindex, at)
	if err != nil || len(list.Programs) == 0 || list.Programs[0] != id {
		return false, err
	}
	if err = l.Update(prog); errors.Is(err, unix.ENOLINK) {
		return false, nil // another link of podweir's took its place
	}
	return true, err
}

// linkAtHead returns the link of a program that is the first on a hook, nil if it is not, or about to be detached.
func linkAtHead(program uint32, ifindex int, at uint32) (*bpfcall.Link, error) {
	list, err := bpfcall.QueryTCX(ifindex, at)
	if err != nil || len(list.Programs) == 0 || list.Programs[0] != program || list.Links[0] == 0 {
		return nil, err
	}
	l, err := bpfcall.LinkByID(list.Links[0])
	if leaves(err) {
		return nil, nil
	}
	return l, err
}

// attachTries is how often a list may change between being read and the attach.
const attachTries = 10

// The kernel detaches a link some time after its last pin is gone, and refuses the
// same program until then: a pod that is added again right after its DEL meets that. 40 ms
// beside four packages of tests on Linux 6.18; beside linters and two emulated kernels 2 s were too short.
const (
	detachWithin = 10 * time.Second
	detachPause  = 5 * time.Millisecond
)

// attachWithin is attachHead for a program that is about to be detached there.
func attachWithin(prog *bpfcall.Program, ifindex int, at uint32) (l *bpfcall.Link, err error) {
	for deadline := time.Now().Add(detachWithin); ; <-time.After(detachPause) {
		l, err = attachHead(prog, ifindex, at)
		if !errors.Is(err, unix.EEXIST) || time.Now().After(deadline) {
			return l, err
		}
	}
}

// attachHead attaches to the list that was read: if another party changed it since,
// it is read again. Whoever was faster stands behind us then, not before.
func attachHead(prog *bpfcall.Program, ifindex int, at uint32) (l *bpfcall.Link, err error) {
	err = onNewest(func() (uint64, error) {
		list, err := bpfcall.QueryTCX(ifindex, at)
		return list.Revision, err
	}, func(revision uint64) error {
		l, err = bpfcall.AttachTCXHead(prog, ifindex, at, revision)
		return err
	})
	return l, err
}

// onNewest changes a list of the revision that was read, and reads it again as
// long as another party is faster, [attachTries] times.
func onNewest(read func() (revision uint64, err error), change func(revision uint64) error) error {
	for try := 1; ; try++ {
		revision, err := read()
		if err != nil {
			return err
		}
		err = change(revision)
		if !errors.Is(err, unix.ESTALE) || try == attachTries {
			return err
		}
	}
}

func verifyHead(prog *bpfcall.Program, ifindex int, h terms.Hook, at uint32) error {
	info, err := prog.Info()
	if err != nil {
		return err
	}
	list, err := bpfcall.QueryTCX(ifindex, at)
	if err != nil {
		return fmt.Errorf("tcx %v of ifindex %d: %w", h, ifindex, err)
	}
	if len(list.Programs) == 0 || list.Programs[0] != info.ID {
		return fmt.Errorf("tcx %v of ifindex %d: program %d is not at the head after its attach", h, ifindex, info.ID)
	}
	return nil
}

// detachNow detaches a pinned link and waits for it. Without its pins the kernel
// detaches a link some time later, and until then takes the same program for
// one that is there already.
func detachNow(pin string) error {
	l, err := bpfcall.OpenLink(pin)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open tcx link %s: %w", pin, err)
	}
	err = errors.Join(l.Detach(), os.Remove(pin), l.Close())
	if err != nil {
		return fmt.Errorf("detach tcx link %s: %w", pin, err)
	}
	return nil
}

// PutHost tells the programs on TCX hooks at the host side the slot of the
// direction at a device.
func (n *Slab) PutHost(dir string, d terms.Direction, ifindex int) error {
	s, err := n.mustFind(dir, d)
	if err != nil {
		return err
	}
	m, err := n.made(mapHosts)
	if err != nil {
		return err
	}
	key := hostKey(ifindex, d)
	if err := m.Update(bytesOf(&key), bytesOf(&s.number)); err != nil {
		return fmt.Errorf("give ifindex %d its slot: %w", ifindex, err)
	}
	return nil
}

// HostSlot is the slot that programs on TCX hooks at the host side use for a
// direction at a device, 0 if there is none.
func (n *Slab) HostSlot(d terms.Direction, ifindex int) (uint32, error) {
	m, err := n.table(mapHosts)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	key, number := hostKey(ifindex, d), uint32(0)
	if err := m.Lookup(bytesOf(&key), bytesOf(&number)); err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("read the slot of ifindex %d: %w", ifindex, err)
	}
	return number, nil
}

// forgetHost removes what [Slab.PutHost] put, unless another slot has taken the
// place.
func (n *Slab) forgetHost(ifindex int, d terms.Direction, slot uint32) error {
	if now, err := n.HostSlot(d, ifindex); err != nil || now != slot {
		return err
	}
	m, err := n.table(mapHosts)
	if err != nil {
		return err
	}
	key := hostKey(ifindex, d)
	if err := m.Delete(bytesOf(&key)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("forget the slot of ifindex %d: %w", ifindex, err)
	}
	return nil
}

func hostKey(ifindex int, d terms.Direction) image.Host {
	return image.Host{Ifindex: uint32(ifindex), Direction: uint32(d)}
}

// DetachTCX removes a pinned link of a direction; none is no error. The kernel
// detaches it soon after, without the caller waiting for RCU.
func DetachTCX(dir string, d terms.Direction, name Link) error {
	if err := unpin(pinPath(dir, d, string(name))); err != nil {
		return fmt.Errorf("unpin tcx link: %w", err)
	}
	return nil
}

// DetachTCXNow is DetachTCX for whoever needs it to be detached: it waits for RCU if there is one.
func DetachTCXNow(dir string, d terms.Direction, name Link) error {
	return detachNow(pinPath(dir, d, string(name)))
}

// DetachLost takes podweir's programs off a TCX hook of a device in the caller's
// network namespace, those that keep says yes to excepted. It needs no pins of them.
// Each takes 11 to 16 ms on Linux 6.18.
func DetachLost(ifindex int, h terms.Hook, keep func(p *attach.HookProgram) bool) error {
	list, err := queryTCX(ifindex, h)
	if err != nil {
		return err
	}
	for i, id := range list.Programs {
		p := tcxProgram(h, id)
		if list.Links[i] == 0 || !p.Ours || keep(&p) {
			continue
		}
		if err := detachLink(list.Links[i]); err != nil {
			return fmt.Errorf("detach %s (%d) from tcx %v of ifindex %d: %w", p.Name, id, h, ifindex, err)
		}
	}
	return nil
}

func detachLink(id uint32) error {
	l, err := bpfcall.LinkByID(id)
	if leaves(err) {
		return nil // the kernel is about to detach it
	}
	if err != nil {
		return err
	}
	return errors.Join(l.Detach(), l.Close())
}

// queryTCX lists what is on a TCX hook and stays there: nothing on a kernel without TCX.
func queryTCX(ifindex int, h terms.Hook) (list bpfcall.TCXList, err error) {
	at, err := tcxType(h)
	if err == nil {
		list, err = bpfcall.QueryTCX(ifindex, at)
	}
	if errors.Is(err, unix.EINVAL) {
		return bpfcall.TCXList{}, nil
	}
	if err != nil {
		return list, fmt.Errorf("query tcx %v of ifindex %d: %w", h, ifindex, err)
	}
	var living bpfcall.TCXList
	for i, id := range list.Links {
		if id == 0 || !dying(id) {
			living.Programs, living.Links = append(living.Programs, list.Programs[i]), append(living.Links, id)
		}
	}
	return living, nil
}

// dying says that a link has no pin and no holder left: for some 15 ms on Linux 6.18, and longer on a machine with much to do,
// the kernel still lists its program. An ADD after a DEL would take that for its own.
func dying(link uint32) bool {
	l, err := bpfcall.LinkByID(link)
	if err == nil {
		_ = l.Close()
	}
	return leaves(err)
}

// leaves says that a link could not be opened because the kernel is about to detach it.
func leaves(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAGAIN) }

// QueryTCX lists the programs on both TCX hooks of a device in the caller's
// network namespace, in the order they run. A kernel without TCX has none.
func QueryTCX(ifindex int) ([]attach.HookProgram, error) {
	var all []attach.HookProgram
	for _, h := range []terms.Hook{terms.HookIngress, terms.HookEgress} {
		list, err := queryTCX(ifindex, h)
		if err != nil {
			return nil, err
		}
		for _, id := range list.Programs {
			all = append(all, tcxProgram(h, id))
		}
	}
	return all, nil
}

func tcxProgram(h terms.Hook, id uint32) attach.HookProgram {
	info := programInfo(id)
	return attach.HookProgram{
		Kind: terms.HookKindTCX, Hook: h, ProgramID: id, Name: info.Name, Tag: info.Tag, Ours: Ours(id, info.Name, info.Tag),
	}
}

// ProbeTCX says whether the kernel has TCX, by asking it about the loopback device of the caller's
// network namespace. An error means that the kernel could not be asked.
func ProbeTCX() (bool, error) {
	_, err := bpfcall.QueryTCX(1, bpfcall.TCXEgress)
	if errors.Is(err, unix.EINVAL) { // the kernel does not know the kind of hook
		return false, nil
	}
	return err == nil, err
}
