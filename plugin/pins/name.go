// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package pins

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// nameMax is NAME_MAX of linux/limits.h in bytes.
const nameMax = 255

// separator stands between container and interface. Encode never gives it.
const separator = ","

const hexDigits = "0123456789abcdef"

// Encode turns any name into a file name: letters, digits, '-' and '_' stay,
// every other byte becomes %xx. So there is no dot, which bpffs refuses with
// EPERM, no '/', and nothing that means something to a glob.
//
// Returns an error wrapping [ErrName] if the name is empty or the result
// exceeds 255 bytes.
func Encode(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("an empty name %w", ErrName)
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	if b.Len() > nameMax {
		return "", fmt.Errorf("%q takes %d of %d bytes and %w", name, b.Len(), nameMax, ErrName)
	}
	return b.String(), nil
}

// Decode is the inverse of [Encode]. Returns an error wrapping [ErrName] for
// what Encode does not give, so that every name has one file name only.
func Decode(file string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(file); i++ {
		switch c := file[i]; {
		case plain(c):
			b.WriteByte(c)
		case c == '%' && i+2 < len(file):
			v, err := hex.DecodeString(file[i+1 : i+3])
			if err != nil {
				return "", fmt.Errorf("%q is not a name of podweir's: %w", file, ErrName)
			}
			b.WriteByte(v[0])
			i += 2
		default:
			return "", fmt.Errorf("%q is not a name of podweir's: %w", file, ErrName)
		}
	}
	if again, err := Encode(b.String()); err != nil || again != file {
		return "", fmt.Errorf("%q is not a name of podweir's: %w", file, ErrName)
	}
	return b.String(), nil
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func encodeAttachment(k Key) (string, error) {
	container, err := Encode(k.ContainerID)
	if err != nil {
		return "", fmt.Errorf("container ID: %w", err)
	}
	ifname, err := Encode(k.IfName)
	if err != nil {
		return "", fmt.Errorf("interface name: %w", err)
	}
	base := container + separator + ifname
	if len(base) > nameMax {
		return "", fmt.Errorf("container ID %q with interface %q takes %d of %d bytes and %w",
			k.ContainerID, k.IfName, len(base), nameMax, ErrName)
	}
	return base, nil
}

// decodeAttachment leaves the network empty.
func decodeAttachment(file string) (Key, error) {
	c, i, ok := strings.Cut(file, separator)
	if !ok {
		return Key{}, fmt.Errorf("%q is not a name of podweir's: %w", file, ErrName)
	}
	container, err := Decode(c)
	if err != nil {
		return Key{}, err
	}
	ifname, err := Decode(i)
	if err != nil {
		return Key{}, err
	}
	return Key{ContainerID: container, IfName: ifname}, nil
}

// settled is how old the last change of a directory must be before what was read is trusted:
// bpffs tells the time of it to a tick of the kernel, and another change may be of the same tick.
const settled = 100 * time.Millisecond

// Index lists a store again and again. It reads only directories that changed since, which is
// none most of the time. It is not safe for concurrent use.
type Index struct {
	store   *Store
	read    map[string]listing
	devices map[Key][]string
}

// listing is what was in a directory that was changed last at a time, in ns since 1970.
type listing struct {
	names   []string
	changed int64
	stale   bool
}

// Index returns an index that has read nothing yet.
func (s *Store) Index() *Index { return &Index{store: s} }

// Devices returns the directories of all interfaces that have one, sorted, by their attachments. The
// caller must not change the map. An error leaves the next call to read what is missing.
func (x *Index) Devices() (map[Key][]string, error) {
	now, stale := time.Now(), x.devices == nil
	for dir, l := range x.read {
		if l.stale = l.stale || changedAt(dir) != l.changed; l.stale {
			x.read[dir], stale = l, true
		}
	}
	if !stale {
		return x.devices, nil
	}
	w := walk{before: x.read, read: make(map[string]listing, len(x.read)), now: now}
	devices := make(map[Key][]string, len(x.devices))
	for _, network := range w.names(x.store.root) {
		name, err := Decode(network)
		if err != nil {
			continue
		}
		parent := filepath.Join(x.store.root, network)
		for _, file := range w.names(parent) {
			k, err := decodeAttachment(file)
			if err != nil {
				continue
			}
			k.Network = name
			dir := filepath.Join(parent, file)
			for _, device := range w.names(dir) {
				if _, err := Decode(device); err == nil {
					devices[k] = append(devices[k], filepath.Join(dir, device))
				}
			}
			slices.Sort(devices[k])
		}
	}
	if w.err != nil {
		return x.devices, w.err
	}
	x.read, x.devices = w.read, devices
	return devices, nil
}

// walk lists directories, or takes what was read before.
type walk struct {
	before, read map[string]listing
	now          time.Time
	err          error
}

func (w *walk) names(dir string) []string {
	l, known := w.before[dir]
	if !known || l.stale {
		var err error
		l = listing{changed: changedAt(dir)} // first: what changes meanwhile is read again
		if l.names, err = readNames(dir); err != nil && w.err == nil {
			w.err = err
		}
		l.stale = w.now.UnixNano()-l.changed < settled.Nanoseconds()
	}
	w.read[dir] = l
	return l.names
}

// changedAt is when a directory was changed last, 0 if there is none.
func changedAt(dir string) int64 {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return 0
	}
	return st.Mtim.Nano()
}
