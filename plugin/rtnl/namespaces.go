// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// netnsPlaces are where network namespaces can be found: those with a name, and those
// of processes.
var netnsPlaces = []string{"/run/netns/*", "/run/docker/netns/*", "/proc/[0-9]*/ns/net"}

// NetNSPaths returns one path to each network namespace that has a name or a process,
// those with a name first. A file that is no namespace may be among them.
func NetNSPaths() []string {
	type identity struct{ dev, inode uint64 }
	seen := make(map[identity]bool)
	var all []string
	for _, pattern := range netnsPlaces {
		paths, _ := filepath.Glob(pattern) // the patterns are good
		slices.Sort(paths)
		for _, path := range paths {
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil || seen[identity{st.Dev, st.Ino}] {
				continue // a process that has ended, or known already
			}
			seen[identity{st.Dev, st.Ino}] = true
			all = append(all, path)
		}
	}
	return all
}
