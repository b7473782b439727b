// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/terms"
)

// Paths are where podweir keeps state: pins, and what may be deleted at any
// time (ruling 11).
type Paths struct {
	// Pins is a directory on bpffs.
	Pins string
	// Run is a directory on tmpfs: probe results, and what is in [Paths.Mail].
	Run string
}

// DefaultPaths are those of a node.
var DefaultPaths = Paths{Pins: pins.DefaultRoot, Run: "/run/podweir"}

// Mail is where the agent, podweir-cni and the commands leave each other word.
func (p Paths) Mail() mailbox.Dir { return mailbox.Dir(p.Run) }

// store implements apply.Store: records as maps pinned on bpffs.
type store struct {
	pins *pins.Store
	// usual is the node's own where this is another one: what that one has is not lost, and not to be taken over. Else
	// it is nil.
	usual *store
}

func openStore(root string) (*store, error) {
	s, err := pins.Open(root)
	if errors.Is(err, pins.ErrNotBPFFS) {
		return nil, fmt.Errorf("%w: %w", ErrNoState, err)
	}
	if err != nil {
		return nil, err
	}
	out := &store{pins: s}
	here, _ := os.Stat(root)
	if there, err := os.Stat(DefaultPaths.Pins); err == nil && !os.SameFile(here, there) { // a directory may have several paths
		if usual, err := pins.Open(DefaultPaths.Pins); err == nil { // else there are no records in it
			out.usual = &store{pins: usual}
		}
	}
	return out, nil
}

// Attached says whether there is anything of an attachment: the quick look for what
// most pods of a node have, which is nothing.
func (p Paths) Attached(id attach.ID) (bool, error) {
	s, err := openStore(p.Pins)
	if errors.Is(err, ErrNoState) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, found, err := s.pins.Find(id)
	return found, err
}

// Kept implements [apply.Store].
func (s *store) Kept(id attach.ID) (attach.ID, error) {
	found, _, err := s.pins.Find(id)
	return found, err
}

// Recorded returns the attachments that have a record, without those that are known: one
// without a record is being made.
func (p Paths) Recorded(known func(attach.ID) bool) ([]attach.ID, error) {
	s, err := openStore(p.Pins)
	if errors.Is(err, ErrNoState) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids, err := s.pins.List()
	return slices.DeleteFunc(ids, func(id attach.ID) bool {
		if known(id) {
			return true
		}
		records, err := s.Records(id)
		return err == nil && len(records) == 0
	}), err
}

// Lock implements [apply.Store].
func (s *store) Lock(ctx context.Context, id attach.ID) (func(), error) {
	return s.pins.Lock(ctx, id)
}

// Records implements [apply.Store].
func (s *store) Records(id attach.ID) ([]*apply.Record, error) {
	devices, err := s.pins.Devices(id)
	if err != nil {
		return nil, err
	}
	var all []*apply.Record
	var bad error
	for _, name := range devices {
		r, err := s.read(id, name)
		if errors.Is(err, os.ErrNotExist) {
			continue // killed before the record was pinned: nothing was made
		}
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("%v device %s: %w", id, name, err))
			continue
		}
		all = append(all, r)
	}
	return all, bad
}

func (s *store) read(id attach.ID, name string) (*apply.Record, error) {
	dir, err := s.pins.DevicePath(id, name)
	if err != nil {
		return nil, err
	}
	b, err := datapath.ReadRecord(dir)
	if err != nil {
		return nil, err
	}
	r, err := apply.UnmarshalRecord(b)
	if err == nil && (r.ID != id || r.Interface.PodName != name) {
		// Its names become paths.
		return nil, fmt.Errorf("%w: it is of %v device %q", apply.ErrUnknownRecord, r.ID, r.Interface.PodName)
	}
	if err == nil {
		r.Interface.NetNSPath = terms.NetNSPath(r.Interface.NetNSPath)
		r.ClockWasSet(mailbox.Moved(r.Booted))
	}
	return r, err
}

// Marks are the attachments of the node, each with a number that is another one after each
// change of its records. To read them again takes some us for each.
func (n *Node) Marks() (map[attach.ID]uint64, error) {
	if n.index == nil {
		n.index = n.store.pins.Index()
	}
	all, err := n.index.Devices()
	marks := make(map[attach.ID]uint64, len(all))
	for id, devices := range all {
		mark := uint64(0)
		for _, dir := range devices {
			mark = mark*31 + datapath.RecordMark(dir)
		}
		marks[id] = mark
	}
	return marks, err
}

// Write implements [apply.Store].
func (s *store) Write(r *apply.Record) error {
	r.Booted = mailbox.Booted(time.Now())
	b, err := r.Marshal()
	if err != nil {
		return err
	}
	dir, err := s.pins.MakeDevice(r.ID, r.Interface.PodName)
	if err != nil {
		return err
	}
	if err := datapath.WriteRecord(dir, b); err != nil {
		return err
	}
	return s.Hold(r)
}

// Hold implements [apply.Store].
func (s *store) Hold(r *apply.Record) error {
	return s.pins.Hold(holdName(&r.Interface), r.ID)
}

// Another implements [apply.Store].
func (s *store) Another(than attach.ID, i *attach.Interface) (*apply.Record, error) {
	if s.usual != nil {
		if r, err := s.usual.Another(attach.ID{}, i); r != nil || err != nil {
			return r, err
		}
	}
	id, found, err := s.pins.Holder(holdName(i))
	if err != nil || !found || id.Same(than) {
		return nil, err
	}
	records, err := s.Records(id)
	if n := slices.IndexFunc(records, func(r *apply.Record) bool { return r.Interface.Same(i) }); n >= 0 {
		return records[n], nil
	}
	if errors.Is(err, apply.ErrUnknownRecord) {
		err = nil
	}
	return nil, err
}

// holdName is the name of an interface for [pins.Store.Hold].
func holdName(i *attach.Interface) string {
	return fmt.Sprintf("%d-%d", cmp.Or(i.NetNSCookie, i.NetNSInode), i.PodIndex)
}

// Remove implements [apply.Store].
func (s *store) Remove(id attach.ID, i *attach.Interface) error {
	if i == nil {
		return s.pins.Remove(id)
	}
	if err := s.pins.LetGo(holdName(i), id); err != nil {
		return err
	}
	return s.pins.RemoveDevice(id, i.PodName)
}

// dirs are the pin directories of all interfaces, also of those that are just being
// made.
func (s *store) dirs() ([]string, error) {
	all, err := s.pins.Index().Devices()
	return slices.Concat(slices.Collect(maps.Values(all))...), err
}

func (s *store) dir(r *apply.Record) (string, error) {
	return s.pins.DevicePath(r.ID, r.Interface.PodName)
}
