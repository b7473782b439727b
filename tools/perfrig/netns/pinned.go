// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/shaping/model"
)

// Maps of one direction, as in bpf/lib/maps.h.
const (
	mapConfig = "pw_config"
	mapActive = "pw_active"
	mapState  = "pw_state"
)

// pinned are the paths of what podweir pinned for a direction of a pod under a
// name, none or one; a lab's names are the same on bpffs.
func pinned(pod *traffic.Target, d traffic.Direction, object string) ([]string, error) {
	pattern := filepath.Join(pins.DefaultRoot, "*", pod.ContainerID+","+pod.IfName, "*", d.String()+"-"+object)
	return filepath.Glob(pattern)
}

// state are the maps of one direction of a pod.
type state struct {
	config, active, state *ebpf.Map
}

func openState(pod *traffic.Target, d traffic.Direction) (*state, error) {
	s := &state{}
	for name, to := range map[string]**ebpf.Map{mapConfig: &s.config, mapActive: &s.active, mapState: &s.state} {
		paths, err := pinned(pod, d, name)
		if err == nil && len(paths) != 1 {
			err = fmt.Errorf("pod %s has %d pinned for %s, want 1", pod.Name, len(paths), d)
		}
		if err == nil {
			*to, err = ebpf.LoadPinnedMap(paths[0], nil)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("map %s: %w", name, err), s.close())
		}
	}
	return s, nil
}

func (s *state) close() error {
	// A map that is nil may be closed.
	return errors.Join(s.config.Close(), s.active.Close(), s.state.Close())
}

// read returns the configuration in use and its place.
func (s *state) read() (cfg *image.Config, at uint32, err error) {
	cfg = &image.Config{}
	if err := s.active.Lookup(uint32(0), &at); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", mapActive, err)
	}
	if err := s.config.Lookup(at, cfg); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", mapConfig, err)
	}
	return cfg, at, nil
}

// setKeys gives the running programs other keys of the flow hash, as podweir
// itself changes a configuration: what is in the sketch stays and decays.
func (s *state) setKeys(keys model.Keys) error {
	cfg, at, err := s.read()
	if err != nil {
		return err
	}
	cfg.HashKeys = keys
	next := (at + 1) % s.config.MaxEntries()
	if err := s.config.Put(next, cfg); err != nil {
		return fmt.Errorf("write %s: %w", mapConfig, err)
	}
	if err := s.active.Put(uint32(0), next); err != nil {
		return fmt.Errorf("write %s: %w", mapActive, err)
	}
	return nil
}
