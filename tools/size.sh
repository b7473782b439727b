#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Counts what a maintainer has to read, in the files that git knows, beside what it
# is to be at most. Fails if "-check" is given and a number is above its target.
set -euo pipefail
cd "$(dirname "$0")/.."

files() { git ls-files -z --cached --others --exclude-standard -- "$@" | while IFS= read -r -d '' f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done; }
count() { xargs -0r cat | wc "$1"; }

over=0
row() {
	printf '%-32s %8d %8d\n' "$1" "$2" "$3"
	[ "$2" -le "$3" ] || over=1
}
printf '%-32s %8s %8s\n' '' now target
row 'Go without tests, lines' "$(files '*.go' ':!*_test.go' | count -l)" 65000
row 'Go tests, lines' "$(files '*_test.go' | count -l)" 48000
row 'README.md and docs, words' "$(files README.md 'docs/*.md' | count -w)" 75000
row 'modules' "$(files '*go.mod' | tr '\0' '\n' | wc -l)" 14
[ "${1:-}" != -check ] || exit "$over"
