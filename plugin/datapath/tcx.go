// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
)

func tcxType(h shaping.Hook) (uint32, error) {
	switch h {
	case shaping.HookEgress:
		return bpfcall.TCXEgress, nil
	case shaping.HookIngress:
		return bpfcall.TCXIngress, nil
	default:
		return 0, fmt.Errorf("no TCX attach type for hook %v", h)
	}
}

// AttachTCX attaches a program of the direction's at the head of a TCX hook of the
// device with this index in the caller's network namespace, pins the link and
// reads the order back. A link that the direction has at the head already gets the
// program in one step. Any other is replaced by a new link, which waits for RCU
// under RTNL, 11 to 16 ms (design.md).
func AttachTCX(dir string, d shaping.Direction, name Link, prog *bpfcall.Program, ifindex int, h shaping.Hook) error {
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
	if err := detachNow(pin); err != nil {
		return err
	}
	l, err := attachHead(prog, ifindex, at)
	if err != nil {
		return fmt.Errorf("tcx %v of ifindex %d: %w", h, ifindex, err)
	}
	defer func() { _ = l.Close() }()
	if err := l.Pin(pin); err != nil {
		return fmt.Errorf("pin tcx link in %s: %w", dir, err)
	}
	return verifyHead(prog, ifindex, h, at)
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
	return true, l.Update(prog)
}

// attachTries is how often a list may change between being read and the attach.
const attachTries = 10

// attachHead attaches to the list that was read: if somebody changed it since,
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
// long as somebody else is faster, [attachTries] times.
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

func verifyHead(prog *bpfcall.Program, ifindex int, h shaping.Hook, at uint32) error {
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

// DetachTCX removes the pinned links of a direction; none is no error. The kernel
// detaches them soon after, without the caller waiting for RCU.
func DetachTCX(dir string, d shaping.Direction) error {
	for _, name := range []Link{ProgramLink, CeilingLink} {
		err := os.Remove(pinPath(dir, d, string(name)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unpin tcx link: %w", err)
		}
	}
	return nil
}

// QueryTCX lists the programs on both TCX hooks of a device in the caller's
// network namespace, in the order they run. A kernel without TCX has none.
func QueryTCX(ifindex int) ([]attach.HookProgram, error) {
	var all []attach.HookProgram
	for _, h := range []shaping.Hook{shaping.HookIngress, shaping.HookEgress} {
		at, err := tcxType(h)
		if err != nil {
			return nil, err
		}
		list, err := bpfcall.QueryTCX(ifindex, at)
		if errors.Is(err, unix.EINVAL) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("query tcx %v of ifindex %d: %w", h, ifindex, err)
		}
		for _, id := range list.Programs {
			all = append(all, attach.HookProgram{
				Kind: shaping.HookKindTCX, Hook: h, ProgramID: id, Name: ProgramName(id),
			})
		}
	}
	return all, nil
}

// HaveTCX says whether the kernel has TCX, by asking it about the loopback
// device of the caller's network namespace.
func HaveTCX() bool {
	has, err := ProbeTCX()
	return has && err == nil
}

// ProbeTCX is HaveTCX for who keeps the answer: an error means that the kernel
// could not be asked.
func ProbeTCX() (bool, error) {
	_, err := bpfcall.QueryTCX(1, bpfcall.TCXEgress)
	if errors.Is(err, unix.EINVAL) { // the kernel does not know the kind of hook
		return false, nil
	}
	return err == nil, err
}
