// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// Observe returns what the slot of a direction holds, nil if it has none. dir is
// where the interface's pins are.
func (n *Slab) Observe(dir string, d terms.Direction) (*attach.Dataplane, error) {
	s, found, err := n.find(dir, d)
	if err != nil || !found {
		return nil, err
	}
	dp := &attach.Dataplane{Slot: s.number, ProgramName: text(s.Program[:]), Side: terms.Side(s.Side), Build: text(s.Build[:])}
	if cfg := s.config(); cfg.AbiVersion == ABIVersion {
		dp.Datapath, dp.RedirectIndex = fromConfig(cfg), int(cfg.RedirectIfindex)
	}
	return dp, nil
}

func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func pinPath(dir string, d terms.Direction, object string) string {
	return filepath.Join(dir, d.String()+"-"+object)
}

// Unpin removes every pin of a direction; a link detaches. What is absent is no
// error.
func Unpin(dir string, d terms.Direction) error {
	pins, err := filepath.Glob(pinPath(dir, d, "*"))
	if err != nil {
		return fmt.Errorf("list pins of %v in %s: %w", d, dir, err)
	}
	for _, p := range pins {
		if err := unpin(p); err != nil {
			return fmt.Errorf("unpin: %w", err)
		}
	}
	return nil
}

// unpin removes a pin; none is no error. [os.Remove] asks twice for what is not there.
func unpin(path string) error {
	if err := unix.Unlink(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
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
