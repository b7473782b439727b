// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
)

func layoutRules() []Rule {
	return []Rule{
		{"the top level is the agreed one", topLevel},
		{"committed objects and bindings belong together", objects},
		{"files stay short", fileSizes},
	}
}

// topLevelNames are all that may stand at the top.
var topLevelNames = []string{
	"plugin", "bpf", "chart", "compat", "docs", "e2e", "findings", "tools",
	"go.mod", "go.sum", "Makefile", "CHANGELOG.md", "README.md", "LICENSE",
	".ci", ".github",
	".clang-format", ".editorconfig", ".gitattributes", ".gitignore", ".golangci.yml", ".shellcheckrc",
}

func topLevel(t *Tree) []string {
	var faults []string
	seen := map[string]bool{}
	for _, f := range t.Files {
		top, _, _ := strings.Cut(f.Path, "/")
		if !seen[top] && !slices.Contains(topLevelNames, top) {
			faults = append(faults, top+": has no place at the top level")
		}
		seen[top] = true
	}
	for _, name := range []string{"go.mod", "Makefile", "README.md", "CHANGELOG.md", "LICENSE", ".ci"} {
		if !seen[name] {
			faults = append(faults, name+": is missing")
		}
	}
	return faults
}

// objects holds binaries down to the BPF objects that bpf2go wrote, each beside
// its binding.
func objects(t *Tree) []string {
	var faults []string
	for _, f := range t.Files {
		object := f.Is("bpf/*_bpfel.o", "bpf/*/*_bpfel.o")
		if bytes.HasPrefix(f.Data, []byte("\x7fELF")) != object {
			faults = append(faults, f.Path+": only bpf/*_bpfel.o may be an ELF file, and must be one")
		}
		switch {
		case object:
			if t.Get(strings.TrimSuffix(f.Path, ".o")+".go") == nil {
				faults = append(faults, f.Path+": has no binding beside it")
			}
		case f.Is("bpf/*_bpfel.go", "bpf/*/*_bpfel.go"):
			name := strings.TrimSuffix(f.Path, ".go") + ".o"
			if t.Get(name) == nil {
				faults = append(faults, f.Path+": has no object beside it")
			}
			if !bytes.Contains(f.Data, []byte("//go:embed "+path.Base(name))) {
				faults = append(faults, fmt.Sprintf("%s: does not embed %s", f.Path, path.Base(name)))
			}
			if !f.Generated() {
				faults = append(faults, f.Path+": does not say that it is generated")
			}
		}
	}
	return faults
}

// Limits of a file in lines. Half of what we write is below 130; these are
// where a reader loses the thread.
const (
	maxLines     = 500
	maxTestLines = 800
	maxCLines    = 300
)

func fileSizes(t *Tree) []string {
	var faults []string
	used := map[string]bool{}
	for _, f := range t.Files {
		limit := maxLines
		switch {
		case f.Foreign() || f.Generated():
			continue
		case f.Is("*_test.go"):
			limit = maxTestLines
		case f.Is("*.c", "*.h"):
			limit = maxCLines
		case !f.Is("*.go", "*.sh"):
			continue
		}
		if n := bytes.Count(f.Data, []byte("\n")); n > limit {
			if _, ok := longFiles[f.Path]; ok {
				used[f.Path] = true
				continue
			}
			faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d", f.Path, n, limit))
		}
	}
	return append(faults, stale("longFiles", longFiles, used)...)
}
