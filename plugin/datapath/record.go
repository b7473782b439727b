// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
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
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "pw_record", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1,
	})
	if err != nil {
		return fmt.Errorf("make record of %d bytes: %w", size, err)
	}
	defer func() { _ = m.Close() }()
	value := make([]byte, size)
	copy(value, record)
	if err := m.Put(uint32(0), value); err != nil {
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
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, fmt.Errorf("open record %s: %w", path, err)
	}
	defer func() { _ = m.Close() }()
	value := make([]byte, m.ValueSize())
	if err := m.Lookup(uint32(0), &value); err != nil {
		return nil, fmt.Errorf("read record %s: %w", path, err)
	}
	return bytes.TrimRight(value, "\x00"), nil
}
