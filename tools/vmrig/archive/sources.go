// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package archive fetches and unpacks packages of a Debian release with apt,
// in a state of its own: the machine's sources, lists and packages stay as
// they are.
package archive

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Source is where Debian's archive is, and what proves that it is Debian's.
type Source struct {
	// URI is the archive's, such as a machine's sources name it.
	URI string
	// Keyring is the path of the keys that may sign it; apt's own if empty.
	Keyring string
}

// debianKeyring is what the package debian-archive-keyring installs.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// releases are suite names that only Debian's archive has. A machine of any of
// them can fetch from all of them.
var releases = []string{
	"bullseye", "bookworm", "trixie", "forky", "duke", "sid",
	"oldoldstable", "oldstable", "stable", "testing", "unstable",
}

// SystemSource returns the first source of etc, which is /etc/apt, that is
// Debian's archive. It fails if there is none: an archive is never guessed.
func SystemSource(etc string) (Source, error) {
	paths := []string{filepath.Join(etc, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		more, err := filepath.Glob(filepath.Join(etc, "sources.list.d", pattern))
		if err != nil {
			return Source{}, err
		}
		paths = append(paths, more...)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return Source{}, err
		}
		parse := oneLine
		if strings.HasSuffix(path, ".sources") {
			parse = deb822
		}
		if s, ok := parse(string(data)); ok {
			return s, nil
		}
	}
	return Source{}, fmt.Errorf("no source under %s is Debian's archive: name one with -mirror", etc)
}

// WithKeyring fills in Debian's keyring where the source names none and the
// machine has it.
func (s Source) WithKeyring() Source {
	if _, err := os.Stat(debianKeyring); s.Keyring == "" && err == nil {
		s.Keyring = debianKeyring
	}
	return s
}

// entry is one source as both formats describe it.
type entry struct {
	types, uris, suites, components []string
	signedBy                        string
}

// source returns the archive of the entry if it is Debian's. Suites such as
// bookworm-updates lie in the same archive, bookworm-security does not.
func (e entry) source() (Source, bool) {
	debian := slices.ContainsFunc(e.suites, func(s string) bool { return slices.Contains(releases, s) })
	if !debian || len(e.uris) == 0 || !slices.Contains(e.types, "deb") || !slices.Contains(e.components, "main") {
		return Source{}, false
	}
	s := Source{URI: strings.TrimSuffix(e.uris[0], "/")}
	// A key may also be spelled out in place; apt's default covers that.
	if filepath.IsAbs(e.signedBy) {
		s.Keyring = e.signedBy
	}
	return s, true
}

// oneLine reads "deb [option=value] uri suite component..." lines.
func oneLine(data string) (Source, bool) {
	for line := range strings.Lines(data) {
		line, _, _ = strings.Cut(line, "#")
		var e entry
		before, rest, found := strings.Cut(line, "[")
		if found {
			options, after, _ := strings.Cut(rest, "]")
			for option := range strings.FieldsSeq(options) {
				if v, ok := strings.CutPrefix(option, "signed-by="); ok {
					e.signedBy = v
				}
			}
			line = before + after
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		e.types, e.uris, e.suites, e.components = fields[:1], fields[1:2], fields[2:3], fields[3:]
		if s, ok := e.source(); ok {
			return s, true
		}
	}
	return Source{}, false
}

// deb822 reads paragraphs of "Key: value" lines.
func deb822(data string) (Source, bool) {
	var e entry
	disabled := false
	scanner := bufio.NewScanner(strings.NewReader(data + "\n\n"))
	for scanner.Scan() {
		line := scanner.Text()
		if strings.TrimSpace(line) == "" {
			if s, ok := e.source(); ok && !disabled {
				return s, true
			}
			e, disabled = entry{}, false
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(key) {
		case "enabled":
			disabled = value == "no"
		case "types":
			e.types = strings.Fields(value)
		case "uris":
			e.uris = strings.Fields(value)
		case "suites":
			e.suites = strings.Fields(value)
		case "components":
			e.components = strings.Fields(value)
		case "signed-by":
			e.signedBy = value
		}
	}
	return Source{}, false
}
