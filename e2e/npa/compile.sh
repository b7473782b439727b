#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir

# Builds the programs that the AWS Network Policy Agent loads in a cluster of either IP
# family, as its own Makefile does:
#	compile.sh INTO [SOURCES]
# SOURCES is a directory of the agent's module; without it, that is the one in the module cache.
set -euo pipefail
into=$(realpath -m "$1") sources=${2:+$(realpath "$2")}
cd "$(dirname "$0")"
[ -n "$sources" ] || sources=$(go list -m -f '{{.Dir}}' github.com/aws/aws-network-policy-agent)
# podweir's own programs are built with this version. bpftool is in sbin, which a user's PATH may lack.
clang=$(command -v clang-19 || command -v clang)
PATH=$PATH:/usr/sbin:/sbin

# The agent's image has vmlinux.h installed, and two headers of libbpf's of which the
# programs use nothing.
mkdir -p "$into/bpf"
bpftool btf dump file /sys/kernel/btf/vmlinux format c >"$into/vmlinux.h"
: >"$into/bpf/bpf_tracing.h"
: >"$into/bpf/bpf_core_read.h"
for name in tc.v4ingress tc.v4egress v4events tc.v6ingress tc.v6egress v6events; do
	"$clang" "-I$into" -I../../bpf/headers -g -O2 -Wall -fpie -target bpf -DCORE -D__BPF_TRACING__ -D__TARGET_ARCH_x86 \
		-c "$sources/pkg/ebpf/c/$name.bpf.c" -o "$into/$name.bpf.o"
done
