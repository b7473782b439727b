// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	mdLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// links checks that every relative link names a file or directory of the tree, its
// fragment a heading there, and that links lead from docs/README.md to every page.
func links(t *Tree) []string {
	faults := unlinked(t)
	known := map[string][]string{}
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
			if fragment == "" {
				continue
			}
			if file != nil && known[name] == nil {
				known[name] = anchors(file)
			}
			if !slices.Contains(known[name], fragment) {
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

// unlinked finds the pages that a reader of docs/README.md cannot reach by links.
func unlinked(t *Tree) []string {
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
