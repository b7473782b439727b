// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpfcall

import (
	"errors"
	"fmt"
	"os"
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
	// Inner is the descriptor of a map like those that an array of maps holds.
	Inner int
}

// Map is an open map.
type Map struct {
	object
	id, keyBytes, valueBytes, maxEntries uint32
}

type mapCreateAttr struct {
	mapType, keyBytes, valueBytes, maxEntries, flags uint32
	inner                                            uint32
	_                                                uint32 // numa_node
	name                                             objectName
}

// NewMap makes a map. Its memory is charged to the caller's memory cgroup.
func NewMap(spec *MapSpec) (*Map, error) {
	fd, err := call(unix.BPF_MAP_CREATE, &mapCreateAttr{
		mapType: spec.Type, keyBytes: spec.KeyBytes, valueBytes: spec.ValueBytes, maxEntries: spec.MaxEntries,
		flags: spec.Flags, inner: uint32(spec.Inner), name: newName(spec.Name),
	})
	if err != nil {
		return nil, fmt.Errorf("make map %s: %w", spec.Name, err)
	}
	return &Map{object: object{fd}, keyBytes: spec.KeyBytes, valueBytes: spec.ValueBytes, maxEntries: spec.MaxEntries}, nil
}

// mapInfo is the beginning of struct bpf_map_info.
type mapInfo struct {
	_, id                            uint32 // type
	keyBytes, valueBytes, maxEntries uint32
	_                                uint32 // flags
	name                             objectName
}

// MapName is the name of the map with an ID; it needs CAP_SYS_ADMIN.
func MapName(id uint32) (string, error) {
	fd, err := call(unix.BPF_MAP_GET_FD_BY_ID, &byIDAttr{id: id})
	if err != nil {
		return "", fmt.Errorf("open map %d: %w", id, err)
	}
	f := object{fd}
	defer func() { _ = f.Close() }()
	var i mapInfo
	if err := info(&f, &i); err != nil {
		return "", fmt.Errorf("map %d: %w", id, err)
	}
	return i.name.String(), nil
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
	return &Map{object: fd, id: i.id, keyBytes: i.keyBytes, valueBytes: i.valueBytes, maxEntries: i.maxEntries}, nil
}

// ID is the kernel's number of the map, read when it is first needed; 0 if the kernel
// does not say.
func (m *Map) ID() uint32 {
	var i mapInfo
	if m.id == 0 && info(&m.object, &i) == nil {
		m.id = i.id
	}
	return m.id
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

// StartUpdate is [Map.Update] on another thread: the kernel waits for RCU after it has
// put a map into another one. The map may be closed once the key has its value.
func (m *Map) StartUpdate(key, value []byte) <-chan error {
	done := make(chan error, 1)
	attr, err := m.elementAttr(key, value)
	if err != nil {
		done <- err
		return done
	}
	go func() {
		_, err := call(unix.BPF_MAP_UPDATE_ELEM, attr)
		done <- err
	}()
	return done
}

// Delete removes a key; an error that wraps [unix.ENOENT] means that it was not
// there.
func (m *Map) Delete(key []byte) error {
	_, err := call(unix.BPF_MAP_DELETE_ELEM, &elementAttr{fd: uint32(m.fd), key: pointer(key)})
	return err
}

// Keys returns the keys of a map, at most as many as it has room for: where others change
// it meanwhile, some may be missing and some come twice.
func (m *Map) Keys() ([][]byte, error) {
	var keys [][]byte
	var last []byte
	for range m.maxEntries {
		next := make([]byte, m.keyBytes)
		_, err := call(unix.BPF_MAP_GET_NEXT_KEY, &elementAttr{fd: uint32(m.fd), key: pointer(last), value: pointer(next)})
		if errors.Is(err, unix.ENOENT) {
			return keys, nil
		}
		if err != nil {
			return nil, err
		}
		keys, last = append(keys, next), next
	}
	return keys, nil
}

// Memory maps values of an array that was made with BPF_F_MMAPABLE, each rounded up to
// 8 bytes, and returns what ends that. The mapping outlives the descriptor.
func (m *Map) Memory(first, count uint32) (values []byte, unmap func() error, err error) {
	const word = 8
	stride := (int(m.valueBytes) + word - 1) / word * word
	from, to := int(first)*stride, int(first+count)*stride
	page := from &^ (os.Getpagesize() - 1)
	b, err := unix.Mmap(m.fd, int64(page), to-page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map the memory of an array: %w", err)
	}
	return b[from-page:], func() error { return unix.Munmap(b) }, nil
}

func (m *Map) element(cmd uintptr, key, value []byte) error {
	attr, err := m.elementAttr(key, value)
	if err == nil {
		_, err = call(cmd, attr)
	}
	return err
}

func (m *Map) elementAttr(key, value []byte) (*elementAttr, error) {
	// The kernel reads or writes as much as the map says.
	if len(value) < int(m.valueBytes) {
		return nil, fmt.Errorf("value has %d bytes, the map's have %d", len(value), m.valueBytes)
	}
	return &elementAttr{fd: uint32(m.fd), key: pointer(key), value: pointer(value)}, nil
}
