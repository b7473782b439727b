// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Width is the width of what is printed for people, in columns.
const Width = 80

// Wrap breaks text into lines of at most width columns, between words; a word that is
// longer has a line for itself: it may be part of a command. Control characters become spaces: text may come from elsewhere.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(Printable(text)) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Paragraph is text below a label, wrapped to [Width] and cut after some lines; 0 is no
// cut. Every line but the first is indented as far as the text of the first.
func Paragraph(label, text string, lines int) string {
	room := Width - utf8.RuneCountInString(label)
	wrapped := Wrap(text, room)
	if lines > 0 && len(wrapped) > lines {
		wrapped = wrapped[:lines]
		last := []rune(wrapped[lines-1])
		wrapped[lines-1] = string(last[:min(len(last), room-1)]) + "…"
	}
	var b strings.Builder
	for i, line := range wrapped {
		if i == 1 {
			label = strings.Repeat(" ", utf8.RuneCountInString(label))
		}
		b.WriteString(label + line + "\n")
	}
	return b.String()
}

// Texts are values as people are shown them.
func Texts[T fmt.Stringer](all []T) []string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.String()
	}
	return texts
}

// Printable has no control characters.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// NetNSPath is the one text of a path to a network namespace: on a node /var/run is a link to /run, and runtimes and people
// write either.
func NetNSPath(path string) string {
	if path == "" {
		return ""
	}
	path = filepath.Clean(path)
	if strings.HasPrefix(path, "/var/run/") {
		return strings.TrimPrefix(path, "/var")
	}
	return path
}
