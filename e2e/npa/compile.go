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

	"github.com/cilium/ebpf/btf"

	"github.com/podweir/podweir/e2e/npa/ctypes"
)

// agentModule is where the programs of the agent come from.
const agentModule = "github.com/aws/aws-network-policy-agent"

// objects are the programs that the agent loads in an IPv4 cluster.
var objects = []string{"tc.v4ingress.bpf", "tc.v4egress.bpf", "v4events.bpf"}

// What the programs use of vmlinux.h.
var (
	cTypes = []string{
		"__u8", "__u16", "__u32", "__u64", "__s8", "__s16", "__s32", "__s64", "__be16", "__be32", "__be64", "__wsum",
		"u8", "u16", "u32", "u64", "s64",
		"__sk_buff", "ethhdr", "iphdr", "tcphdr", "udphdr", "sctphdr",
	}
	cEnumerators = []string{"BPF_MAP_TYPE_LPM_TRIE", "BPF_OK", "IPPROTO_TCP", "BPF_ANY"}
)

// compile builds the agent's programs as its own Makefile does, into a directory.
// headers has libbpf's headers in bpf/, and sources the agent's module; if it is empty,
// that is the one in the module cache.
func compile(ctx context.Context, dir, headers, sources string) (err error) {
	if sources == "" {
		if sources, err = moduleDir(ctx, agentModule); err != nil {
			return err
		}
	}
	if err := writeHeaders(dir); err != nil {
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
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("where is %s: %w: %s", module, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// writeHeaders writes what the agent's image has installed: vmlinux.h, out of
// the running kernel, and two headers of libbpf's that the programs include and
// use nothing of.
func writeHeaders(dir string) error {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's BTF: %w", err)
	}
	var vmlinux bytes.Buffer
	vmlinux.WriteString("#pragma once\n")
	if err := ctypes.Write(&vmlinux, spec, cTypes, cEnumerators); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "bpf"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"vmlinux.h": vmlinux.Bytes(), "bpf/bpf_tracing.h": nil, "bpf/bpf_core_read.h": nil,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
