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

	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/terms"
)

// WriteRecord keeps bytes in a map pinned in dir, replacing what is there in
// one step.
func WriteRecord(dir string, record []byte) error {
	size := (len(record) + recordStep) / recordStep * recordStep
	m, err := bpfcall.NewMap(&bpfcall.MapSpec{
		Name: "pw_record", Type: unix.BPF_MAP_TYPE_ARRAY, KeyBytes: 4, ValueBytes: uint32(size), MaxEntries: 1,
	})
	if err != nil {
		return fmt.Errorf("make record of %d bytes: %w", size, err)
	}
	defer func() { _ = m.Close() }()
	var first uint32
	value := make([]byte, size)
	copy(value, record)
	if err := m.Update(bytesOf(&first), value); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return pinOver(m, filepath.Join(dir, recordPin))
}

// pinOver pins an object in the place of what is pinned there, in one step.
func pinOver(object interface{ Pin(path string) error }, path string) error {
	if err := object.Pin(path); !errors.Is(err, os.ErrExist) {
		return err
	}
	next := path + pinNext
	if err := unpin(next); err != nil {
		return fmt.Errorf("unpin what an interrupted run left: %w", err)
	}
	if err := object.Pin(next); err != nil {
		return fmt.Errorf("replace what is pinned: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("replace what is pinned: %w", err)
	}
	return nil
}

// RecordMark is another one after each WriteRecord, and 0 where there is no record.
func RecordMark(dir string) uint64 {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, recordPin), &st) != nil {
		return 0
	}
	return st.Ino
}

// ReadRecord returns the bytes that WriteRecord kept. An error that wraps
// [os.ErrNotExist] means that there are none.
func ReadRecord(dir string) ([]byte, error) {
	path := filepath.Join(dir, recordPin)
	m, err := bpfcall.OpenMap(path)
	if err != nil {
		return nil, fmt.Errorf("open record %s: %w", path, err)
	}
	defer func() { _ = m.Close() }()
	var first uint32
	value := make([]byte, m.ValueBytes())
	if err := m.Lookup(bytesOf(&first), value); err != nil {
		return nil, fmt.Errorf("read record %s: %w", path, err)
	}
	return bytes.TrimRight(value, "\x00"), nil
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

const (
	recordPin = "record"
	// pinNext ends the name under which an object waits to replace another.
	pinNext = "-next"
	// recordStep keeps the map a multiple of this, so that a record that grows
	// a little with `set` costs no more kernel memory.
	recordStep = 512
)
