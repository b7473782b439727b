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
	"bytes"
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
			return nil, fmt.Errorf("%s:%w", name, err)
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
	begin  = regexp.MustCompile(`^( *)<!-- figures: begin (\S+) from (\S+(?: \S+)*) -->$`)
	end    = regexp.MustCompile(`^ *<!-- figures: end -->$`)
	inline = regexp.MustCompile(`(<!-- figure: (\S+) of (\S+) from (\S+) -->).*?(<!-- figure end -->)`)
)

var (
	errMarker = errors.New("this is no marker of a figure")
	// Markdown takes a line that begins with a comment for HTML.
	errFirst = errors.New("a line must not begin with a figure: move a word before it")
)

// page is one that quotes.
type page struct {
	name    string // from the root, with slashes
	results *results
}

// rewrite returns the page's text with its figures made again. An error begins
// with the line.
func (p *page) rewrite(old string) (string, error) {
	var out bytes.Buffer
	fence, skip := false, 0
	for n, line := range strings.SplitAfter(old, "\n") {
		text := strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(text), "```") {
			fence = !fence
		}
		m := begin.FindStringSubmatch(text)
		var err error
		switch {
		case fence:
		case skip > 0 && m != nil:
			err = fmt.Errorf("the figure of line %d does not end", skip)
		case m != nil:
			skip = n + 1
			out.WriteString(line)
			err = p.block(&out, m[1], m[2], strings.Fields(m[3]))
		case skip > 0:
			if !end.MatchString(text) {
				continue
			}
			skip = 0
		case end.MatchString(text):
			err = errors.New("a figure ends that did not begin")
		default:
			line, err = p.numbers(line)
		}
		if err != nil {
			return "", fmt.Errorf("%d: %w", n+1, err)
		}
		if m == nil || fence {
			out.WriteString(line)
		}
	}
	if skip > 0 {
		return "", fmt.Errorf("%d: the figure does not end", skip)
	}
	return out.String(), nil
}

// block writes a view, indented like its markers, with an empty line on either
// side.
func (p *page) block(out *bytes.Buffer, indent, view string, sources []string) error {
	write, ok := views[view]
	if !ok {
		return fmt.Errorf("there is no view %q", view)
	}
	text, err := write(p, sources)
	if err != nil {
		return err
	}
	out.WriteByte('\n')
	for line := range strings.Lines(text) {
		if line != "\n" {
			line = indent + line
		}
		out.WriteString(line)
	}
	out.WriteByte('\n')
	return nil
}

// numbers makes those of a line again.
func (p *page) numbers(line string) (string, error) {
	var failed error
	out := inline.ReplaceAllStringFunc(line, func(old string) string {
		m := inline.FindStringSubmatch(old)
		text, err := p.number(m[2], m[3], m[4])
		failed = errors.Join(failed, err)
		return m[1] + text + m[5]
	})
	if strings.HasPrefix(strings.TrimSpace(line), "<!-- figure:") {
		failed = errors.Join(failed, errFirst)
	}
	if rest := inline.ReplaceAllString(out, ""); failed == nil && strings.Contains(rest, "<!-- figure") {
		failed = fmt.Errorf("%w: %s", errMarker, strings.TrimSpace(rest))
	}
	return out, failed
}

// link is the way from the page to a file of the checkout.
func (p *page) link(to string) string {
	rel, err := filepath.Rel(filepath.Dir(filepath.FromSlash(p.name)), filepath.FromSlash(to))
	if err != nil {
		return to
	}
	return filepath.ToSlash(rel)
}
