// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package show has what the commands of a node and of a cluster print in the same way:
// values for programs, and the live table.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/podweir/podweir/plugin/status/view"
)

// Machine says that a program reads output of a format.
func Machine(format string) bool { return format == "json" || format == "yaml" }

// Print writes a value for programs, as YAML if that is the format, else as JSON.
func Print(w io.Writer, format string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	if format == "yaml" {
		if b, err = toYAML(b); err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimSuffix(string(b), "\n"))
	return err
}

// Page writes a page of text for a terminal.
func Page(w io.Writer, page string) error {
	for line := range strings.Lines(page) {
		if _, err := io.WriteString(w, strings.Join(view.Wrap(line, view.Width), "\n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// toYAML writes JSON as YAML with the same fields in the same order. JSON is YAML in
// another style, which is taken off.
func toYAML(b []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	plain(&doc)
	return yaml.Marshal(&doc)
}

func plain(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		// Quoted where a reader would take the text for something else, such as yes.
		if b, err := yaml.Marshal(n.Value); err == nil && !bytes.HasPrefix(b, []byte(`"`)) {
			n.Style = 0
			n.SetString(n.Value)
		}
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// suggests stands before the commands that cobra takes a word for, one on each line.
const suggests = "\n\nDid you mean this?\n"

// OneLine is an error as a command ends with it, on one line: errors that were joined have a
// line each, and cobra has several for a command that is not there.
func OneLine(err error) string {
	text, similar, found := strings.Cut(err.Error(), suggests)
	if found {
		text += ": did you mean " + strings.Join(strings.Fields(similar), " or ") + "?"
	}
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}
