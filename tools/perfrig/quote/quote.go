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
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/report"
)

// Update makes the chart and every figure of README.md and of the pages below docs
// again, in the checkout at root. It returns the files that have
// changed by it, by their paths from there. Only if write is set are they written.
func Update(root string, write bool) (changed []string, err error) {
	defer step.End(&err)
	renew := func(name, made string) {
		file := filepath.Join(root, name)
		if old, err := os.ReadFile(file); err == nil && string(old) == made {
			return
		}
		changed = append(changed, name)
		if write {
			step.OK(os.WriteFile(file, []byte(made), 0o644))
		}
	}
	results := &results{root: root, campaigns: map[string]*record.Results{}}
	if campaign, _ := results.campaign("netns-rivals"); campaign != nil {
		var chart bytes.Buffer
		step.OK(report.RivalsChart(campaign).WriteSVG(&chart))
		renew(rivalsChart, chart.String())
	}
	for _, name := range step.Get(markdown(root)) {
		old := step.Get(os.ReadFile(filepath.Join(root, name)))
		p := page{name: name, results: results}
		step.Say(step.Run(func() { renew(name, p.rewrite(string(old))) }), "%s", name)
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
		out = append(out, rel)
		return err
	})
	return out, err
}

// results reads each file once.
type results struct {
	root      string
	campaigns map[string]*record.Results
}

// campaign reads a file of what the rig measured, or the newest of a word; nil if there is
// nothing of the word.
func (r *results) campaign(source string) (c *record.Results, name string) {
	name = source
	if !strings.ContainsRune(source, '/') {
		found := step.Get(filepath.Glob(filepath.Join(r.root, "docs/results/*-"+source+"/samples.jsonl")))
		if len(found) == 0 {
			return nil, ""
		}
		name = step.Get(filepath.Rel(r.root, slices.Max(found))) // they begin with their date
	}
	if r.campaigns[name] == nil {
		r.campaigns[name] = step.Get(record.Read(filepath.Join(r.root, name)))
	}
	return r.campaigns[name], name
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
	name    string // from the root
	results *results
}

// rewrite returns the page's text with its figures made again, but for those in code.
func (p *page) rewrite(old string) string {
	var out strings.Builder
	at := 0
	for _, code := range append(fenced.FindAllStringIndex(old, -1), []int{len(old), len(old)}) {
		out.WriteString(p.figures(old[at:code[0]]) + old[code[0]:code[1]])
		at = code[1]
	}
	return out.String()
}

func (p *page) figures(text string) string {
	text = region.ReplaceAllStringFunc(text, func(old string) string {
		m := region.FindStringSubmatch(old)
		begin, end, _ := strings.Cut(old, "\n"+m[4])
		return begin + "\n\n" + p.view(m[1], m[2], strings.Fields(m[3])) + "\n" + end
	})
	text = inline.ReplaceAllStringFunc(text, func(old string) string {
		m := inline.FindStringSubmatch(old)
		return m[1] + p.number(m[2], m[3], m[4]) + m[5]
	})
	if line := first.FindString(text); line != "" {
		step.OK(fmt.Errorf("a line must not begin with a figure: move a word before it: %s", line))
	}
	if line := stray.FindString(inline.ReplaceAllString(region.ReplaceAllString(text, ""), "")); line != "" {
		step.OK(fmt.Errorf("this is no figure, or one that does not end: %s", line))
	}
	return text
}

// view makes a block, indented like its markers.
func (p *page) view(indent, name string, sources []string) string {
	write, ok := views[name]
	if !ok {
		step.OK(fmt.Errorf("there is no view %q", name))
	}
	return regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(write(p, sources), indent+"$1")
}

// link is the way from the page to a file of the checkout.
func (p *page) link(to string) string { return step.Get(filepath.Rel(filepath.Dir(p.name), to)) }
