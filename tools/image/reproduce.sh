#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Builds the image from a copy of the committed and changed files in another
# directory, with an empty build cache, and compares the digest with that of
# "make image". Called by "make check-image", which passes the version.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$1 revision=$2 created=$3 image=$4
copy=$(mktemp -d)
trap 'chmod -R u+w "$copy"; rm -rf "$copy"' EXIT

mkdir "$copy/source"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy/source" --
GOCACHE="$copy/cache" make -C "$copy/source" image \
	VERSION="$version" REVISION="$revision" CREATED="$created" IMAGE="$image" >/dev/null

for file in digest podweir-amd64.spdx.json podweir-arm64.spdx.json; do
	if ! cmp "bin/image/$file" "$copy/source/bin/image/$file"; then
		echo "the same source gave another image:" >&2
		cat bin/image/digest "$copy/source/bin/image/digest" >&2
		exit 1
	fi
done
echo "the same: $(cat bin/image/digest)"
