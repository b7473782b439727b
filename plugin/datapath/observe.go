// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
)

// Programs returns the pinned programs of a direction, whatever release pinned
// them; the rest of the answer is zero.
func Programs(dir string, d shaping.Direction) (*attach.Dataplane, error) {
	dp := &attach.Dataplane{}
	var err error
	if dp.ProgramID, dp.ProgramName, err = pinnedProgram(pinPath(dir, d, pinProgram)); err != nil {
		return nil, err
	}
	if dp.GuardID, _, err = pinnedProgram(pinPath(dir, d, pinGuard)); err != nil {
		return nil, err
	}
	if dp.RedirectID, _, err = pinnedProgram(pinPath(dir, d, pinRedirect)); err != nil {
		return nil, err
	}
	return dp, nil
}

// Observe returns what the pins of a direction hold, nil if nothing is pinned
// or if an interrupted run pinned only a part.
func Observe(dir string, d shaping.Direction) (*attach.Dataplane, error) {
	dp, err := Programs(dir, d)
	if err != nil {
		return nil, err
	}
	if dp.ProgramID == 0 && dp.RedirectID == 0 {
		return nil, nil
	}
	config, active, err := openConfig(dir, d)
	if errors.Is(err, os.ErrNotExist) {
		return dp, nil
	}
	if err != nil {
		return nil, err
	}
	defer closeAll(config, active)
	cfg, err := readConfig(config, active)
	if err != nil {
		return nil, err
	}
	if cfg.AbiVersion != ABIVersion {
		return nil, fmt.Errorf("pins in %s: maps have ABI version %d, this podweir has %d", dir, cfg.AbiVersion, ABIVersion)
	}
	dp.Datapath = fromConfig(cfg)
	dp.RedirectIndex = int(cfg.RedirectIfindex)
	return dp, nil
}

func pinnedProgram(path string) (id uint32, name string, err error) {
	p, err := bpfcall.OpenProgram(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("open pinned program %s: %w", path, err)
	}
	defer func() { _ = p.Close() }()
	if id, name, err = p.Info(); err != nil {
		return 0, "", fmt.Errorf("read program %s: %w", path, err)
	}
	return id, name, nil
}

// ProgramName returns the name of the program with an id, "" if there is none
// any more.
func ProgramName(id uint32) string {
	p, err := bpfcall.ProgramByID(id)
	if err != nil {
		return ""
	}
	defer func() { _ = p.Close() }()
	_, name, err := p.Info()
	if err != nil {
		return ""
	}
	return name
}

func openConfig(dir string, d shaping.Direction) (config, active *bpfcall.Map, err error) {
	if config, err = openMap(dir, d, mapConfig); err != nil {
		return nil, nil, err
	}
	if active, err = openMap(dir, d, mapActive); err != nil {
		_ = config.Close()
		return nil, nil, err
	}
	return config, active, nil
}

func openMap(dir string, d shaping.Direction, name string) (*bpfcall.Map, error) {
	m, err := bpfcall.OpenMap(pinPath(dir, d, name))
	if err != nil {
		return nil, fmt.Errorf("open pinned map %s: %w", pinPath(dir, d, name), err)
	}
	return m, nil
}

func closeAll(maps ...*bpfcall.Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}

// Update changes the limits of a running direction; every packet sees either
// the old ones or the new ones. The hash keys, and so the sketch, stay.
func Update(dir string, d shaping.Direction, dp *shaping.Datapath, redirectIndex int) error {
	config, active, err := openConfig(dir, d)
	if err != nil {
		return err
	}
	defer closeAll(config, active)
	return updateConfig(config, active, dp, redirectIndex)
}

func updateConfig(config, active *bpfcall.Map, dp *shaping.Datapath, redirectIndex int) error {
	old, err := readConfig(config, active)
	if err != nil {
		return err
	}
	cfg := toConfig(dp, redirectIndex)
	cfg.HashKeys = old.HashKeys
	return writeConfig(config, active, cfg)
}

// Open opens the pinned programs of a direction, for attaching them.
func Open(dir string, d shaping.Direction) (*Objects, error) {
	objs := &Objects{}
	for _, p := range []struct {
		name string
		prog **bpfcall.Program
	}{{pinProgram, &objs.Program}, {pinGuard, &objs.Guard}, {pinRedirect, &objs.Redirect}} {
		prog, err := bpfcall.OpenProgram(pinPath(dir, d, p.name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			objs.Close()
			return nil, fmt.Errorf("open pinned program %s: %w", pinPath(dir, d, p.name), err)
		}
		*p.prog = prog
	}
	return objs, nil
}
