// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/podweir/podweir/tools/image/oci"
)

// licenceName is what modules call the files that have to go with copies.
var licenceName = regexp.MustCompile(`(?i)^(LICEN[CS]E|COPYING|NOTICE)([.-].*)?$`)

// licences collects the licence files of podweir, of Go's own library and of
// every module. A module without one is an error: it may not be handed on.
func licences(modules []debug.Module) ([]oci.File, error) {
	out, err := licenceFiles(".", "/licenses")
	if err != nil {
		return nil, err
	}
	root, err := goTool("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	goroot, err := licenceFiles(root, "/licenses/go")
	if err != nil {
		return nil, err
	}
	out = append(out, goroot...)
	for _, m := range modules {
		dir, err := goTool("list", "-m", "-f", "{{.Dir}}", m.Path+"@"+m.Version)
		if err != nil {
			return nil, err
		}
		files, err := licenceFiles(dir, "/licenses/"+m.Path)
		if err != nil {
			return nil, fmt.Errorf("module %s %s: %w", m.Path, m.Version, err)
		}
		out = append(out, files...)
	}
	return out, nil
}

func licenceFiles(from, to string) ([]oci.File, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, err
	}
	var out []oci.File
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceName.MatchString(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, oci.File{Path: to + "/" + e.Name(), Mode: 0o644, Data: data})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no licence", from)
	}
	return out, nil
}

// goTool runs the go command and returns its one line of output.
func goTool(args ...string) (string, error) {
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// static checks that a binary is for the architecture and asks for no loader:
// the image has no libraries.
func static(name, arch string) error {
	f, err := elf.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if want, ok := machines[arch]; !ok || f.Machine != want {
		return fmt.Errorf("%s is for %s", name, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically; build it with CGO_ENABLED=0", name)
		}
	}
	return nil
}
