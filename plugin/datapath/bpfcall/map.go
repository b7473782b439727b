// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpfcall

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MapSpec is what a map is made from. Type and Flags are numbers of
// linux/bpf.h, sizes are in bytes.
type MapSpec struct {
	Name                             string
	Type                             uint32
	KeyBytes, ValueBytes, MaxEntries uint32
	Flags                            uint32
}

// Map is an open map.
type Map struct {
	object
	valueBytes, maxEntries uint32
}

type mapCreateAttr struct {
	mapType, keyBytes, valueBytes, maxEntries, flags uint32
	_                                                [2]uint32 // inner_map_fd, numa_node
	name                                             objectName
}

// NewMap makes a map. Its memory is charged to the caller's memory cgroup.
func NewMap(spec *MapSpec) (*Map, error) {
	fd, err := call(unix.BPF_MAP_CREATE, &mapCreateAttr{
		mapType: spec.Type, keyBytes: spec.KeyBytes, valueBytes: spec.ValueBytes, maxEntries: spec.MaxEntries,
		flags: spec.Flags, name: newName(spec.Name),
	})
	if err != nil {
		return nil, fmt.Errorf("make map %s: %w", spec.Name, err)
	}
	return &Map{object: object{fd}, valueBytes: spec.ValueBytes, maxEntries: spec.MaxEntries}, nil
}

// mapInfo is the beginning of struct bpf_map_info.
type mapInfo struct {
	_                      [3]uint32 // type, ID, size of a key
	valueBytes, maxEntries uint32
}

// OpenMap opens a pinned map. An error that wraps [os.ErrNotExist] means that
// there is none.
func OpenMap(path string) (*Map, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	var i mapInfo
	if err := info(&fd, &i); err != nil {
		_ = fd.Close()
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &Map{object: fd, valueBytes: i.valueBytes, maxEntries: i.maxEntries}, nil
}

// ValueBytes is the size of one value, on one CPU.
func (m *Map) ValueBytes() int { return int(m.valueBytes) }

// MaxEntries is how many entries the map can have.
func (m *Map) MaxEntries() uint32 { return m.maxEntries }

type elementAttr struct {
	fd    uint32
	_     uint32
	key   unsafe.Pointer
	value unsafe.Pointer
	_     uint64 // flags
}

// Lookup reads the value of a key into value, which has to have its size: of a
// per-CPU map, that of one value rounded up to 8 bytes for each possible CPU.
func (m *Map) Lookup(key, value []byte) error {
	return m.element(unix.BPF_MAP_LOOKUP_ELEM, key, value)
}

// Update sets the value of a key, which need not exist.
func (m *Map) Update(key, value []byte) error {
	return m.element(unix.BPF_MAP_UPDATE_ELEM, key, value)
}

func (m *Map) element(cmd uintptr, key, value []byte) error {
	// The kernel reads or writes as much as the map says.
	if len(value) < int(m.valueBytes) {
		return fmt.Errorf("value has %d bytes, the map's have %d", len(value), m.valueBytes)
	}
	_, err := call(cmd, &elementAttr{fd: uint32(m.fd), key: pointer(key), value: pointer(value)})
	return err
}
