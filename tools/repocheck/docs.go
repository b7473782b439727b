// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

func docRules() []Rule {
	return []Rule{
		{"links between documents resolve", links},
		{"docs/README.md leads to every page", mapped},
		{"code blocks name their language", fences},
		{"the changelog keeps its form", changelog},
		{"documented make targets exist", makeTargets},
		{"documented values of the chart exist", chartValues},
	}
}

var (
	mdLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// links checks that every relative link names a file or directory of the tree,
// and its fragment a heading there.
func links(t *Tree) []string {
	var faults []string
	for _, f := range t.Files {
		if !f.Is("*.md") {
			continue
		}
		for _, link := range relativeLinks(&f) {
			target, fragment, _ := strings.Cut(link, "#")
			name := f.Path
			if target != "" {
				name = path.Join(path.Dir(f.Path), target)
			}
			file := t.Get(name)
			if file == nil && !t.hasDir(name) {
				faults = append(faults, fmt.Sprintf("%s: links to %s, which is not there", f.Path, link))
				continue
			}
			if fragment != "" && (file == nil || !slices.Contains(anchors(file), fragment)) {
				faults = append(faults, fmt.Sprintf("%s: links to %s, which has no such heading", f.Path, link))
			}
		}
	}
	return faults
}

func relativeLinks(f *File) []string {
	var out []string
	for _, m := range mdLink.FindAllSubmatch(fenced.ReplaceAll(f.Data, nil), -1) {
		if link := string(m[1]); !strings.Contains(link, "://") && !strings.HasPrefix(link, "mailto:") {
			out = append(out, link)
		}
	}
	return out
}

func (t *Tree) hasDir(name string) bool {
	return slices.ContainsFunc(t.Files, func(f File) bool { return strings.HasPrefix(f.Path, name+"/") })
}

// anchors lists the fragments of a page as GitHub makes them: lower case,
// punctuation dropped, spaces to hyphens.
func anchors(f *File) []string {
	var out []string
	for _, m := range heading.FindAllSubmatch(fenced.ReplaceAll(f.Data, nil), -1) {
		text := strings.ToLower(dropped.ReplaceAllString(string(m[1]), ""))
		out = append(out, strings.ReplaceAll(text, " ", "-"))
	}
	return out
}

// mapped checks that a reader of docs/README.md can reach every page by links.
func mapped(t *Tree) []string {
	const top = "docs/README.md"
	reached := map[string]bool{top: true}
	for queue := []string{top}; len(queue) > 0; queue = queue[1:] {
		f := t.Get(queue[0])
		if f == nil {
			continue
		}
		for _, link := range relativeLinks(f) {
			target, _, _ := strings.Cut(link, "#")
			name := path.Join(path.Dir(f.Path), target)
			if target != "" && !reached[name] {
				reached[name] = true
				queue = append(queue, name)
			}
		}
	}
	var faults []string
	for _, f := range t.Files {
		if strings.HasPrefix(f.Path, "docs/") && f.Is("*.md") && !reached[f.Path] {
			faults = append(faults, f.Path+": no link leads here from "+top)
		}
	}
	return faults
}

func fences(t *Tree) []string {
	var faults []string
	for _, f := range t.Files {
		if !f.Is("*.md") {
			continue
		}
		open, n := false, 0
		for line := range bytes.Lines(f.Data) {
			n++
			mark := bytes.TrimSpace(line)
			if !bytes.HasPrefix(mark, []byte("```")) {
				continue
			}
			if open = !open; open && len(mark) == len("```") {
				faults = append(faults, fmt.Sprintf("%s:%d: the code block has no language (text, if none fits)", f.Path, n))
			}
		}
		if open {
			faults = append(faults, f.Path+": a code block is not closed")
		}
	}
	return faults
}

// changelogSections are those of Keep a Changelog 1.1.0.
var changelogSections = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

func changelog(t *Tree) []string {
	f := t.Get("CHANGELOG.md")
	if f == nil {
		return []string{"CHANGELOG.md: is missing"}
	}
	var faults []string
	if !bytes.Contains(f.Data, []byte("\n## [Unreleased]\n")) {
		faults = append(faults, "CHANGELOG.md: has no section [Unreleased]")
	}
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllSubmatch(f.Data, -1) {
		if !slices.Contains(changelogSections, string(m[1])) {
			faults = append(faults, fmt.Sprintf("CHANGELOG.md: section %q is not one of %s", m[1], strings.Join(changelogSections, ", ")))
		}
	}
	return faults
}
