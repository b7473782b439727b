// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
)

// Binary is what is known of a plugin's binary.
type Binary struct {
	// Path is below the root, "" if there is none.
	Path string
	// Executable, Static and Machine are of the file; Err says why they are not
	// known.
	Executable, Static bool
	Machine            elf.Machine
	Err                error
}

// machines are the processors that podweir is built for.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// readBinary looks at an executable without running it.
func readBinary(root fs.FS, name string) Binary {
	b := Binary{Path: name}
	if name == "" {
		return b
	}
	info, err := fs.Stat(root, name)
	if err != nil {
		b.Err = err
		return b
	}
	b.Executable = info.Mode().Perm()&0o111 != 0
	f, err := root.Open(name)
	if err != nil {
		b.Err = err
		return b
	}
	defer func() { _ = f.Close() }()
	at, ok := f.(io.ReaderAt)
	if !ok {
		b.Err = errors.New("the file system has no random access")
		return b
	}
	e, err := elf.NewFile(at)
	if err != nil {
		b.Err = err
		return b
	}
	defer func() { _ = e.Close() }()
	b.Machine, b.Static = e.Machine, e.Section(".interp") == nil
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

// Digest identifies a build of the plugin: SHA-256, in hexadecimal.
func Digest(file io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// installed is the digest of the plugin on the node; "" if no one requests it or
// it cannot be read.
func installed(root fs.FS, name, beside string) string {
	if name == "" || beside == "" {
		return ""
	}
	f, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	sum, err := Digest(f)
	if err != nil {
		return ""
	}
	return sum
}

// wantMachine is the processor that this program runs on, and so the node's.
func wantMachine() elf.Machine { return machines[runtime.GOARCH] }
