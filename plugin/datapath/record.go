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
)

const (
	recordPin     = "record"
	recordPinNext = "record-next"
	// recordStep keeps the map a multiple of this, so that a record that grows
	// a little with `set` costs no other slab.
	recordStep = 512
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
	next := filepath.Join(dir, recordPinNext)
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin record of an interrupted run: %w", err)
	}
	if err := m.Pin(next); err != nil {
		return fmt.Errorf("pin record in %s: %w", dir, err)
	}
	if err := os.Rename(next, filepath.Join(dir, recordPin)); err != nil {
		return fmt.Errorf("replace record: %w", err)
	}
	return nil
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
