// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package quote

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/record"
)

// results reads each file once.
type results struct {
	root      string
	campaigns map[string]*record.Results
}

func newResults(root string) *results {
	return &results{root: root, campaigns: map[string]*record.Results{}}
}

// find returns the path of a source from the root. It is "" for a word that
// nothing has been committed of.
func (r *results) find(source string) (string, error) {
	if strings.ContainsRune(source, '/') {
		_, err := os.Stat(filepath.Join(r.root, filepath.FromSlash(source)))
		return source, err
	}
	found, err := filepath.Glob(filepath.Join(r.root, "docs", "results", "*-"+source, "samples.jsonl"))
	if err != nil {
		return "", fmt.Errorf("source %q: %w", source, err)
	}
	if len(found) == 0 {
		return "", nil
	}
	// They begin with their date.
	name, err := filepath.Rel(r.root, slices.Max(found))
	return filepath.ToSlash(name), err
}

// campaign reads what the rig measured; nil if the source is a word of which
// there is nothing.
func (r *results) campaign(source string) (c *record.Results, name string, err error) {
	if name, err = r.find(source); err != nil || name == "" {
		return nil, name, err
	}
	if c = r.campaigns[name]; c == nil {
		if c, err = record.Read(filepath.Join(r.root, filepath.FromSlash(name))); err != nil {
			return nil, name, err
		}
		r.campaigns[name] = c
	}
	return c, name, nil
}
