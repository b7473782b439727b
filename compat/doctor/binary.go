// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"io/fs"
	"slices"
	"strings"
)

// Binary is what is known of a plugin's binary.
type Binary struct {
	// Path is below the root, "" if there is none.
	Path string
	// Executable is the file's mode; Err says why it is not known.
	Executable bool
	Err        error
}

func readBinary(root fs.FS, name string) Binary {
	b := Binary{Path: name}
	if name == "" {
		return b
	}
	info, err := fs.Stat(root, name)
	if b.Err = err; err == nil {
		b.Executable = info.Mode().Perm()&0o111 != 0
	}
	return b
}

// readNoExec returns the directories on a file system that is mounted noexec: nothing
// there can be run, whatever the mode of the file.
func readNoExec(root fs.FS, dirs []string) []string {
	b, err := fs.ReadFile(root, "proc/1/mounts")
	if err != nil {
		return nil
	}
	var out []string
	for _, dir := range dirs {
		best, noexec := "", false
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 4 {
				continue
			}
			at := strings.ReplaceAll(f[1], `\040`, " ")
			// A later mount at the same place covers the earlier one.
			if below("/"+dir, at) && len(at) >= len(best) {
				best, noexec = at, slices.Contains(strings.Split(f[3], ","), "noexec")
			}
		}
		if noexec {
			out = append(out, dir)
		}
	}
	return out
}

// below says whether a path is a directory or in it.
func below(name, dir string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir+"/")
}
