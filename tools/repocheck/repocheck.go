// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package repocheck holds three rules of the repository that no linter has: verdicts on
// shared hooks are next or drop, links between documents resolve, and commands that
// documents tell a reader to type exist. Its tests run them on this tree.
package repocheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is what the rules look at: every file of the repository that is not
// built, ignored or git's own.
type Tree struct {
	Files []File
}

// File is one file of the tree.
type File struct {
	// Path is relative to the top, with slashes.
	Path string
	// Data is what the rules read: documents, C, the Makefile and the chart's schema.
	Data []byte
}

// Load reads the tree below root, which has to be a checkout of git.
func Load(root string) (*Tree, error) {
	names, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", root, err)
	}
	t := &Tree{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		f := File{Path: name}
		if f.Is("*.md", "*.c", "*.h", "Makefile", "chart/*.json") {
			// One that is deleted, and not yet for git, is no file of the tree.
			if f.Data, err = os.ReadFile(filepath.Join(root, name)); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, err
			}
		}
		t.Files = append(t.Files, f)
	}
	return t, nil
}

// Get returns the file of that path, nil if there is none.
func (t *Tree) Get(name string) *File {
	for i := range t.Files {
		if t.Files[i].Path == name {
			return &t.Files[i]
		}
	}
	return nil
}

// Is reports whether the file's path or its name matches a pattern of [path.Match].
func (f *File) Is(patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		whole, _ := path.Match(p, f.Path)
		name, _ := path.Match(p, path.Base(f.Path))
		return whole || name
	})
}
