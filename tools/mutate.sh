#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Runs fuzz targets for the given number of executions each on random changes of
# their inputs, and of what go test's fuzzer found and left in its cache: those that
# use plugin/testutil/mutate, or of them those whose "DIRECTORY TARGET" matches a
# regular expression. Further arguments are flags of go test.
set -euo pipefail
count=${1:?usage: mutate.sh 1000000 [REGEXP [FLAG...]]}
targets=${2:-.}
cache=$(go env GOCACHE)/fuzz

# file:func FuzzName(
while IFS=: read -r file declaration; do
	dir=$(dirname "$file")
	target=${declaration#func }
	target=${target%%(*}
	if ! grep -qE "$targets" <<<"$dir $target"; then
		continue
	fi
	echo "mutate ./$dir $target $count"
	go test -timeout 0 -v -run "^$target\$" "./$dir" "${@:3}" \
		-mutate="$count" -mutate.corpus="$cache/$(go list "./$dir")" | grep -vE '^(=== |    --- )'
done < <(grep -rl --include='*_test.go' 'mutate\.New(' compat plugin | xargs grep -oE '^func Fuzz[A-Za-z0-9_]+\(' | sort)
