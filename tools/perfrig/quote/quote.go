// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package quote writes what documents quote of committed results: figures
// between markers in Markdown, each made of a file of results and of nothing
// else.
//
// A figure is a block of lines,
//
//	<!-- figures: begin VIEW from SOURCE... -->
//	<!-- figures: end -->
//
// or a number in a line,
//
//	<!-- figure: METRIC of CELL from SOURCE --><!-- figure end -->
//
// A source is a path from the root of the checkout, or a word: the newest
// docs/results/*-WORD/samples.jsonl.
package quote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Update makes the charts and every figure of README.md and of the pages below docs
// again, in the checkout at root. It returns the files that have
// changed by it, by their paths from there. Only if write is set are they written.
func Update(root string, write bool) (changed []string, err error) {
	pages, err := markdown(root)
	if err != nil {
		return nil, err
	}
	results := newResults(root)
	if changed, err = drawRivals(results, write); err != nil {
		return nil, err
	}
	for _, name := range pages {
		file := filepath.Join(root, filepath.FromSlash(name))
		old, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p := page{name: name, results: results}
		text, err := p.rewrite(string(old))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if text == string(old) {
			continue
		}
		changed = append(changed, name)
		if write {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				return nil, err
			}
		}
	}
	return changed, nil
}

// markdown lists the pages that may quote.
func markdown(root string) ([]string, error) {
	out := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".md" {
			return err
		}
		rel, err := filepath.Rel(root, name)
		out = append(out, filepath.ToSlash(rel))
		return err
	})
	return out, err
}

var (
	region = regexp.MustCompile(`(?ms)^( *)<!-- figures: begin (\S+) from (\S+(?: \S+)*) -->\n(.*?)^ *<!-- figures: end -->$`)
	inline = regexp.MustCompile(`(<!-- figure: (\S+) of (\S+) from (\S+) -->).*?(<!-- figure end -->)`)
	// Markdown takes a line that begins with a comment for HTML.
	first  = regexp.MustCompile(`(?m)^ *<!-- figure: .*$`)
	stray  = regexp.MustCompile(`(?m)^.*<!-- figure.*$`)
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// page is one that quotes.
type page struct {
	name    string // from the root, with slashes
	results *results
}

// rewrite returns the page's text with its figures made again, but for those in code.
func (p *page) rewrite(old string) (string, error) {
	var out strings.Builder
	at := 0
	for _, code := range append(fenced.FindAllStringIndex(old, -1), []int{len(old), len(old)}) {
		text, err := p.figures(old[at:code[0]])
		if err != nil {
			return "", err
		}
		out.WriteString(text + old[code[0]:code[1]])
		at = code[1]
	}
	return out.String(), nil
}

func (p *page) figures(text string) (string, error) {
	var failed error
	text = region.ReplaceAllStringFunc(text, func(old string) string {
		m := region.FindStringSubmatch(old)
		made, err := p.view(m[1], m[2], strings.Fields(m[3]))
		failed = errors.Join(failed, err)
		begin, end, _ := strings.Cut(old, "\n"+m[4])
		return begin + "\n\n" + made + "\n" + end
	})
	text = inline.ReplaceAllStringFunc(text, func(old string) string {
		m := inline.FindStringSubmatch(old)
		number, err := p.number(m[2], m[3], m[4])
		failed = errors.Join(failed, err)
		return m[1] + number + m[5]
	})
	if line := first.FindString(text); line != "" {
		failed = errors.Join(failed, fmt.Errorf("a line must not begin with a figure: move a word before it: %s", line))
	}
	if line := stray.FindString(inline.ReplaceAllString(region.ReplaceAllString(text, ""), "")); line != "" {
		failed = errors.Join(failed, fmt.Errorf("this is no figure, or one that does not end: %s", line))
	}
	return text, failed
}

// view makes a block, indented like its markers.
func (p *page) view(indent, name string, sources []string) (string, error) {
	write, ok := views[name]
	if !ok {
		return "", fmt.Errorf("there is no view %q", name)
	}
	text, err := write(p, sources)
	return regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(text, indent+"$1"), err
}

// link is the way from the page to a file of the checkout.
func (p *page) link(to string) string {
	rel, err := filepath.Rel(filepath.Dir(filepath.FromSlash(p.name)), filepath.FromSlash(to))
	if err != nil {
		return to
	}
	return filepath.ToSlash(rel)
}
