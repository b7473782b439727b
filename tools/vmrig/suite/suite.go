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

	"github.com/podweir/podweir/e2e/step"
)

// Binary is a package's tests, built.
type Binary struct {
	// Package is the import path, Dir where its tests run.
	Package, Dir string
	Path         string
	// Run is the pattern of the tests to run, that of the runner if empty.
	Run string
}

// converter is the file beside binaries that makes events of what they print.
const converter = "test2json"

// Build builds the tests of packages into dir, static, so that a guest needs
// nothing of them but the file, and what makes events of their output. It is for a [step.Run].
func Build(ctx context.Context, dir string, packages []string) []Binary {
	dir = step.Get(filepath.Abs(dir))
	step.OK(os.MkdirAll(dir, 0o755))
	goTool(ctx, append([]string{"test", "-c", "-o", dir + "/"}, packages...)...)
	goTool(ctx, "build", "-o", filepath.Join(dir, converter), "cmd/test2json")
	var binaries []Binary
	for line := range strings.Lines(goTool(ctx, append([]string{"list", "-f", "{{.ImportPath}}\t{{.Dir}}"}, packages...)...)) {
		pkg, pkgDir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		binaries = append(binaries, Binary{Package: pkg, Dir: pkgDir, Path: filepath.Join(dir, filepath.Base(pkg)+".test")})
	}
	return binaries
}

func goTool(ctx context.Context, args ...string) string {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		step.OK(fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.Bytes()))
	}
	return string(out)
}
