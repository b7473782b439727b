// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// agentModule is where the programs of the agent come from.
const agentModule = "github.com/aws/aws-network-policy-agent"

// objects are the programs that the agent loads in a cluster of either IP family.
var objects = []string{
	"tc.v4ingress.bpf", "tc.v4egress.bpf", "v4events.bpf",
	"tc.v6ingress.bpf", "tc.v6egress.bpf", "v6events.bpf",
}

// compile builds the agent's programs as its own Makefile does, into a directory.
// headers has libbpf's headers in bpf/, and sources the agent's module; if it is empty,
// that is the one in the module cache.
func compile(ctx context.Context, dir, headers, sources string) (err error) {
	if sources == "" {
		if sources, err = moduleDir(ctx, agentModule); err != nil {
			return err
		}
	}
	if err := writeHeaders(ctx, dir); err != nil {
		return err
	}
	for _, name := range objects {
		cmd := exec.CommandContext(ctx, clang(), "-I"+dir, "-I"+headers,
			"-g", "-O2", "-Wall", "-fpie", "-target", "bpf", "-DCORE", "-D__BPF_TRACING__", "-D__TARGET_ARCH_x86",
			"-c", filepath.Join(sources, "pkg", "ebpf", "c", name+".c"), "-o", filepath.Join(dir, name+".o"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// clang is the compiler, by the name of the version that podweir's own programs
// are built with if it is there.
func clang() string {
	if path, err := exec.LookPath("clang-19"); err == nil {
		return path
	}
	return "clang"
}

func moduleDir(ctx context.Context, module string) (string, error) {
	out, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	return strings.TrimSpace(string(out)), err
}

// output runs a program and returns what it prints.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, stderr.String())
	}
	return out, nil
}

// writeHeaders writes what the agent's image has installed: vmlinux.h, out of
// the running kernel, and two headers of libbpf's that the programs include and
// use nothing of.
func writeHeaders(ctx context.Context, dir string) error {
	// bpftool is in sbin, which a user's PATH may lack.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil {
		return err
	}
	vmlinux, err := output(ctx, "bpftool", "btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "c")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "bpf"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"vmlinux.h": vmlinux, "bpf/bpf_tracing.h": nil, "bpf/bpf_core_read.h": nil,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
