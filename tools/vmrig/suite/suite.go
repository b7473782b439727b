// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Binary is a package's tests, built.
type Binary struct {
	// Package is the import path, Dir where its tests run.
	Package, Dir string
	Path         string
	// Run is the pattern of the tests to run, that of the runner if empty.
	Run string
}

// Build builds the tests of packages into dir, static, so that a guest needs
// nothing of them but the file.
func Build(ctx context.Context, dir string, packages []string) ([]Binary, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	list, err := output(ctx, "go", append([]string{"list", "-f", "{{.ImportPath}}\t{{.Dir}}"}, packages...)...)
	if err != nil {
		return nil, err
	}
	if _, err := output(ctx, "go", append([]string{"test", "-c", "-o", dir + "/"}, packages...)...); err != nil {
		return nil, err
	}
	var binaries []Binary
	for line := range strings.Lines(list) {
		pkg, pkgDir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		binaries = append(binaries, Binary{Package: pkg, Dir: pkgDir, Path: filepath.Join(dir, filepath.Base(pkg)+".test")})
	}
	return binaries, nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, args[0], err, stderr.Bytes())
	}
	return string(out), nil
}
