// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package archive

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Release is one release of Debian, with package lists of its own under a
// directory. Whatever comes from it has passed apt's signature check.
type Release struct {
	dir     string
	options []string
}

// architecture is the only one that the rig knows kernels and firmware of.
const architecture = "amd64"

// NewRelease makes the state of a release (bookworm, sid) below dir and
// fetches its package lists.
func NewRelease(ctx context.Context, dir string, src Source, suite string) (*Release, error) {
	dir = filepath.Join(dir, suite)
	for _, sub := range []string{"lists/partial", "archives/partial", "none"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	restrictions := "arch=" + architecture
	if src.Keyring != "" {
		restrictions += " signed-by=" + src.Keyring
	}
	sources := filepath.Join(dir, "sources.list")
	line := fmt.Sprintf("deb [%s] %s %s main\n", restrictions, src.URI, suite)
	if err := os.WriteFile(sources, []byte(line), 0o644); err != nil {
		return nil, err
	}
	status := filepath.Join(dir, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	none := filepath.Join(dir, "none")
	r := &Release{dir: dir}
	for _, o := range []string{
		"Dir::Etc::sourcelist=" + sources,
		"Dir::Etc::sourceparts=" + none,
		"Dir::Etc::preferences=" + filepath.Join(none, "preferences"),
		"Dir::Etc::preferencesparts=" + none,
		"Dir::State=" + dir,
		"Dir::State::status=" + status,
		"Dir::Cache=" + dir,
		"APT::Architecture=" + architecture,
		"APT::Architectures=" + architecture,
		// Our directories are not apt's user's.
		"APT::Sandbox::User=root",
		"Acquire::Languages=none",
		"Acquire::Retries=3",
	} {
		r.options = append(r.options, "-o", o)
	}
	if _, err := r.apt(ctx, dir, "apt-get", "update", "-qq"); err != nil {
		return nil, err
	}
	return r, nil
}

// Closure returns packages and those of their dependencies, and of theirs, that
// follow accepts.
func (r *Release) Closure(ctx context.Context, packages []string, follow func(string) bool) ([]string, error) {
	names := slices.Clone(packages)
	for i := 0; i < len(names); i++ {
		out, err := r.apt(ctx, r.dir, "apt-cache", "show", "--no-all-versions", names[i])
		if err != nil {
			return nil, err
		}
		for _, dep := range dependencies(string(out)) {
			if follow(dep) && !slices.Contains(names, dep) {
				names = append(names, dep)
			}
		}
	}
	return names, nil
}

// Unpack downloads packages and unpacks their files below root. No script of a
// package runs.
func (r *Release) Unpack(ctx context.Context, root string, names ...string) error {
	debs, err := os.MkdirTemp(r.dir, "debs-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(debs) }()
	if _, err := r.apt(ctx, debs, "apt-get", append([]string{"download", "-qq"}, names...)...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != len(names) {
		return fmt.Errorf("download of %v gave %d files, want %d", names, len(files), len(names))
	}
	for _, file := range files {
		if _, err := run(ctx, debs, "dpkg-deb", "-x", file, root); err != nil {
			return err
		}
	}
	return nil
}

// apt runs a command of apt in a directory, on this release's state.
func (r *Release) apt(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	return run(ctx, dir, name, append(slices.Clone(r.options), args...)...)
}

func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args[len(args)-min(3, len(args)):], " "), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// dependencies lists the names in a package record's Depends field; of
// alternatives the first.
func dependencies(record string) []string {
	var names []string
	for line := range strings.Lines(record) {
		value, ok := strings.CutPrefix(line, "Depends:")
		if !ok {
			continue
		}
		for dep := range strings.SplitSeq(value, ",") {
			first, _, _ := strings.Cut(dep, "|")
			// A name ends at its version or its architecture.
			if i := strings.IndexAny(strings.TrimSpace(first), " (:"); i >= 0 {
				first = strings.TrimSpace(first)[:i]
			}
			if name := strings.TrimSpace(first); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}
