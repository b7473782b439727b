// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package pins knows the layout of podweir's directory on bpffs, its names,
// its locks and what is left over in it; it needs write access to bpffs and
// opens no BPF object.
package pins

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
)

// DefaultRoot is where podweir pins.
const DefaultRoot = "/sys/fs/bpf/podweir"

// Errors that callers branch on.
var (
	// ErrNotBPFFS means that the root is not on a BPF file system.
	ErrNotBPFFS = errors.New("not on a BPF file system (mount -t bpf bpf /sys/fs/bpf)")
	// ErrName means that a name cannot be a file name on bpffs.
	ErrName = errors.New("cannot be a file name")
)

// Store is podweir's directory on bpffs:
//
//	<root>/<network>/<container>,<interface>/<device>/<pin>
//	<root>/holders,/<device>
//	<root>/node,<layout>/<pin>
//
// It is safe for concurrent use, and by several processes; what belongs to one
// attachment is guarded by [Store.Lock].
type Store struct {
	root string
	// ReadOnly says that nothing can be pinned, as the file system is mounted.
	ReadOnly bool
}

// Open returns the store at root, which need not exist. It makes nothing and
// mounts nothing.
//
// Returns an error wrapping [ErrNotBPFFS] if root is not on bpffs.
func Open(root string) (*Store, error) {
	root = filepath.Clean(root)
	dir := root
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ENOENT) || dir == filepath.Dir(dir) {
			return nil, fmt.Errorf("stat file system of %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
	if uint32(st.Type) != unix.BPF_FS_MAGIC {
		return nil, fmt.Errorf("pin directory %s: %s is %w", root, dir, ErrNotBPFFS)
	}
	return &Store{root: root, ReadOnly: st.Flags&unix.ST_RDONLY != 0}, nil
}

// Root returns the directory of the store.
func (s *Store) Root() string { return s.root }

// NodeDir returns the directory of what all attachments share, of one layout of
// the maps; it need not exist. No network can have its name.
func (s *Store) NodeDir(abi int) string {
	return filepath.Join(s.root, fmt.Sprintf("%s%d", nodePrefix, abi))
}

// nodePrefix begins the names of the directories of [Store.NodeDir].
const nodePrefix = "node" + separator

// OtherNodeDirs returns the directories of [Store.NodeDir] that are there, of every
// layout but this one.
func (s *Store) OtherNodeDirs(abi int) ([]string, error) {
	names, err := readNames(s.root)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, name := range names {
		dir := filepath.Join(s.root, name)
		if strings.HasPrefix(name, nodePrefix) && dir != s.NodeDir(abi) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

// Path returns the directory of an attachment, which need not exist. Returns
// an error wrapping [ErrName] if the key cannot be made into file names.
func (s *Store) Path(id attach.ID) (string, error) {
	network, err := Encode(id.Network)
	if err != nil {
		return "", fmt.Errorf("network name: %w", err)
	}
	base, err := encodeAttachment(id)
	if err != nil {
		return "", err
	}
	return filepath.Join(s.root, network, base), nil
}

// DevicePath returns the directory of one interface of an attachment, where
// its pins are. The attachment has an interface of its own name and may have
// more.
func (s *Store) DevicePath(id attach.ID, device string) (string, error) {
	dir, err := s.Path(id)
	if err != nil {
		return "", err
	}
	name, err := Encode(device)
	if err != nil {
		return "", fmt.Errorf("device name: %w", err)
	}
	return filepath.Join(dir, name), nil
}

// MakeDevice makes the directory of one interface and returns its path. The
// caller holds the lock of the attachment.
func (s *Store) MakeDevice(id attach.ID, device string) (string, error) {
	dir, err := s.DevicePath(id, device)
	if err != nil {
		return "", err
	}
	return dir, mkdirAll(dir)
}

// mkdirAttempts bounds the race with a Remove of the last other attachment of
// a network, which takes the network's directory away: the parent is not there any
// more, or the directory itself is gone when MkdirAll looks what is in its way.
const mkdirAttempts = 100

func mkdirAll(dir string) error {
	var err error
	for range mkdirAttempts {
		if err = unix.Mkdir(dir, 0o700); errors.Is(err, unix.EEXIST) {
			return nil // if it is a file, the next step fails
		}
		if errors.Is(err, unix.ENOENT) {
			err = os.MkdirAll(dir, 0o700)
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("make pin directory: %w", err)
	}
	return nil
}

// Devices returns the names of the interfaces that an attachment has
// directories for, sorted; none is not an error.
func (s *Store) Devices(id attach.ID) ([]string, error) {
	dir, err := s.Path(id)
	if err != nil {
		return nil, err
	}
	names, err := readNames(dir)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(names))
	for _, n := range names {
		if device, err := Decode(n); err == nil {
			out = append(out, device)
		}
	}
	slices.Sort(out)
	return out, nil
}

// List returns all attachments in the order of their names, also those that
// are locked and have nothing yet or no longer. A directory whose name podweir
// cannot have given is left out.
func (s *Store) List() ([]attach.ID, error) {
	var out []attach.ID
	var failed error
	s.each(func(dir string) []string {
		names, err := readNames(dir)
		failed = cmp.Or(failed, err)
		return names
	}, func(id attach.ID, _ string) { out = append(out, id) })
	if failed != nil {
		return nil, failed
	}
	slices.SortFunc(out, func(a, b attach.ID) int {
		return cmp.Or(strings.Compare(a.Network, b.Network), strings.Compare(a.ContainerID, b.ContainerID), strings.Compare(a.IfName, b.IfName))
	})
	return out, nil
}

// each calls do with every attachment and its directory. names lists a directory.
func (s *Store) each(names func(dir string) []string, do func(id attach.ID, dir string)) {
	for _, network := range names(s.root) {
		name, err := Decode(network)
		if err != nil {
			continue
		}
		parent := filepath.Join(s.root, network)
		for _, file := range names(parent) {
			if id, err := decodeAttachment(file); err == nil {
				id.Network = name
				do(id, filepath.Join(parent, file))
			}
		}
	}
}

// Find returns the attachment of a container's interface that has something pinned,
// whatever network it was made for, and whether there is one: within a container no two
// interfaces have one name, and a network may be renamed while the container runs.
func (s *Store) Find(id attach.ID) (found attach.ID, ok bool, err error) {
	networks, err := readNames(s.root)
	if err != nil {
		return id, false, err
	}
	for _, file := range networks {
		one := id
		if one.Network, err = Decode(file); err != nil {
			continue
		}
		if devices, err := s.Devices(one); err != nil || len(devices) > 0 {
			return one, err == nil, err
		}
	}
	return id, false, nil
}

// readNames lists a directory; one that is not there is empty. A file where a
// directory is expected is not ours, and empty too.
func readNames(dir string) ([]string, error) {
	fd, err := openDir(dir)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var names []string
	for room := make([]byte, dirBytes); ; {
		n, err := unix.ReadDirent(fd, room)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, os.ErrNotExist), err == nil && n <= 0:
			return names, nil
		case err != nil:
			return nil, fmt.Errorf("list pins in %s: %w", dir, err)
		default:
			_, _, names = unix.ParseDirent(room[:n], -1, names)
		}
	}
}

// dirBytes is the size of the buffer for the names in a directory, in bytes.
const dirBytes = 8 << 10

// openDir opens a directory. It avoids [os.File]: the Go runtime would make five system calls to find
// out whether its poller can wait for the directory.
func openDir(dir string) (fd int, err error) {
	for {
		fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}

// RemoveDevice unlinks everything in the directory of one interface, and the
// directory. With the last reference the kernel frees what was pinned; a
// pinned link detaches. That there is nothing is not an error.
//
// The caller holds the lock of the attachment, and the attachment's directory
// stays until it is unlocked: the lock is on it.
func (s *Store) RemoveDevice(id attach.ID, device string) error {
	dir, err := s.DevicePath(id, device)
	if err != nil {
		return err
	}
	return removeAll(dir)
}

// Remove is [Store.RemoveDevice] for all that an attachment has.
func (s *Store) Remove(id attach.ID) error {
	dir, err := s.Path(id)
	if err != nil {
		return err
	}
	names, err := readNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

// prune removes empty directories from dir up to the root, which stays.
func (s *Store) prune(dir string) error {
	for dir != s.root && len(dir) > len(s.root) {
		switch err := unix.Rmdir(dir); {
		case err == nil, errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
			return nil
		default:
			return fmt.Errorf("remove pin directory %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
	return nil
}
