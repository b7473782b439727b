// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package pins

import (
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
)

// settled is how old the last change of a directory must be before what was read is trusted:
// bpffs tells the time of it to a tick of the kernel, and another change may be of the same tick.
const settled = 100 * time.Millisecond

// Index lists a store again and again. It reads only directories that changed since, which is
// none most of the time. It is not safe for concurrent use.
type Index struct {
	store   *Store
	read    map[string]listing
	devices map[attach.ID][]string
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
func (x *Index) Devices() (map[attach.ID][]string, error) {
	stale := x.devices == nil
	for dir, l := range x.read {
		if l.stale = l.stale || changedAt(dir) != l.changed; l.stale {
			x.read[dir], stale = l, true
		}
	}
	if !stale {
		return x.devices, nil
	}
	w := walk{before: x.read, read: make(map[string]listing, len(x.read))}
	// The clock that changes are timed by: a machine that gets no processor may have no tick for long.
	if w.err = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &w.now); w.err != nil {
		return x.devices, w.err
	}
	devices := make(map[attach.ID][]string, len(x.devices))
	x.store.each(w.names, func(id attach.ID, dir string) {
		for _, device := range w.names(dir) {
			if _, err := Decode(device); err == nil {
				devices[id] = append(devices[id], filepath.Join(dir, device))
			}
		}
		slices.Sort(devices[id])
	})
	if w.err != nil {
		return x.devices, w.err
	}
	x.read, x.devices = w.read, devices
	return devices, nil
}

// walk lists directories, or takes what was read before.
type walk struct {
	before, read map[string]listing
	now          unix.Timespec
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
		l.stale = w.now.Nano()-l.changed < settled.Nanoseconds()
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
