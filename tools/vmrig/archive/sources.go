// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package archive fetches and unpacks packages of a Debian release with apt,
// in a state of its own: the machine's sources, lists and packages stay as
// they are.
package archive

import (
	"context"
	"fmt"
	"os"
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
// Debian's archive, as apt reads them. It fails if there is none: an archive is never
// guessed. Suites such as bookworm-updates are in the same archive, bookworm-security
// is not.
func SystemSource(ctx context.Context, etc string) (Source, error) {
	out, err := run(ctx, "/", "apt-get", "-o", "Dir::Etc="+etc, "indextargets", "--no-release-info",
		"--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
	if err != nil {
		return Source{}, err
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 && slices.Contains(releases, f[1]) && f[2] == "main" {
			return Source{URI: strings.TrimSuffix(f[0], "/")}.WithKeyring(), nil
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
