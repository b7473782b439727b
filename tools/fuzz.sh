#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Runs fuzz targets of the module for the given time or number of executions, one
# after the other (go test fuzzes one target at a time): every target, or those
# whose "DIRECTORY TARGET" matches a regular expression. Further arguments are
# flags of go test. A crasher that it finds is written to the package's
# testdata/fuzz and fails every later test.
set -euo pipefail
fuzztime=${1:?usage: fuzz.sh 10s or 1000000x [REGEXP [FLAG...]]}
targets=${2:-.}
flags=("${@:3}")
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# go test may report its own deadline as a failure when the time is up in the
# middle of an input (go.dev/issue/75804, fixed in Go 1.27); only an input that
# fails counts.
timed_out() {
	grep -q 'context deadline exceeded' "$output" && ! grep -q 'Failing input written' "$output"
}

# file:func FuzzName(
while IFS=: read -r file declaration; do
	target=${declaration#func }
	target=${target%%(*}
	if ! grep -qE "$targets" <<<"$(dirname "$file") $target"; then
		continue
	fi
	echo "fuzz ./$(dirname "$file") $target $fuzztime"
	if go test -timeout 0 -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "${flags[@]}" "./$(dirname "$file")" >"$output" 2>&1; then
		cat "$output"
	elif timed_out; then
		grep '^fuzz: ' "$output"
		echo "time was up in the middle of an input: no input failed"
	else
		cat "$output"
		exit 1
	fi
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+\(' bpf compat e2e plugin tools 2>/dev/null | sort)
