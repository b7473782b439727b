#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Measures what the verifier spends on each BPF program, on this machine's
# kernel and on those of the rig, and writes bpf/verifier-budget.json. Series of
# other kernels stay in the file as they are. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../bpf"

CGO_ENABLED=0 go test -c -o ../bin/budget.test .
# What a guest writes is lost with it, so it prints the file that it has written.
measure='PODWEIR_UPDATE_BUDGET=1 ../bin/budget.test -test.v -test.run "^TestPrivilegedVerifierBudget$" >&2
	cat verifier-budget.json'
for kernel in host 6.1 6.12 newest; do
	machine=()
	if [ "$kernel" != host ]; then
		machine=(../tools/vmrig/run.sh -k "$kernel" -timeout 2m --)
	fi
	written=$("${machine[@]}" bash -ec "$measure")
	printf '%s\n' "$written" >verifier-budget.json
done
