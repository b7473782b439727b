// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
)

// Programs returns the pinned programs of a direction, whatever release pinned
// them, and says if one is of another build; the rest of the answer is zero.
func Programs(dir string, d shaping.Direction) (*attach.Dataplane, error) {
	dp := &attach.Dataplane{}
	for _, pin := range []struct {
		object string
		id     *uint32
	}{{pinProgram, &dp.ProgramID}, {pinGuard, &dp.GuardID}, {pinRedirect, &dp.RedirectID}, {pinCeiling, &dp.CeilingID}} {
		info, err := pinnedProgram(pinPath(dir, d, pin.object))
		if err != nil {
			return nil, err
		}
		if pin.object == pinProgram {
			dp.ProgramName = info.Name
		}
		*pin.id = info.ID
		if dp.Outdated == "" {
			dp.Outdated = outdated(info)
		}
	}
	return dp, nil
}

// outdated says of a program of podweir's that it is not the one of this build.
func outdated(info bpfcall.ProgramInfo) string {
	p, err := image.ProgramByName(info.Name)
	if err != nil || p.HasTag(info.Tag) {
		return ""
	}
	return fmt.Sprintf("%s with tag %x is of another build", info.Name, info.Tag)
}

// Observe returns what the pins of a direction hold, nil if nothing is pinned
// or if an interrupted run pinned only a part.
func Observe(dir string, d shaping.Direction) (*attach.Dataplane, error) {
	dp, err := Programs(dir, d)
	if err != nil {
		return nil, err
	}
	if dp.ProgramID+dp.RedirectID+dp.CeilingID == 0 {
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
		dp.Outdated = fmt.Sprintf("maps have ABI version %d, this podweir has %d", cfg.AbiVersion, ABIVersion)
		return dp, nil
	}
	dp.Datapath = fromConfig(cfg)
	dp.RedirectIndex = int(cfg.RedirectIfindex)
	return dp, nil
}

// pinnedProgram is zero if nothing is pinned there.
func pinnedProgram(path string) (bpfcall.ProgramInfo, error) {
	p, err := bpfcall.OpenProgram(path)
	if errors.Is(err, os.ErrNotExist) {
		return bpfcall.ProgramInfo{}, nil
	}
	if err != nil {
		return bpfcall.ProgramInfo{}, fmt.Errorf("open pinned program %s: %w", path, err)
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	if err != nil {
		return info, fmt.Errorf("read program %s: %w", path, err)
	}
	return info, nil
}

// ProgramName returns the name of the program with an id, "" if there is none
// any more.
func ProgramName(id uint32) string {
	p, err := bpfcall.ProgramByID(id)
	if err != nil {
		return ""
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
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
	}{{pinProgram, &objs.Program}, {pinGuard, &objs.Guard}, {pinRedirect, &objs.Redirect}, {pinCeiling, &objs.Ceiling}} {
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
