#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Reads the output of "go test -v" and fails if a test was skipped for the lack
# of something that tools/allowed-skips.txt does not list. "skips.sh FILE"
set -euo pipefail
log=${1:?usage: skips.sh FILE}
allowed=$(dirname "$0")/allowed-skips.txt

unlisted=$({ grep -oP 'SKIP-FEATURE: \K.*' "$log" || true; } | sort -u |
	grep -vxFf <(sed -e 's/[[:space:]]*#.*//' -e '/^$/d' "$allowed") || true)
if [ -n "$unlisted" ]; then
	echo "tests were skipped for the lack of what every test machine must have:" >&2
	echo "$unlisted" >&2
	exit 1
fi
