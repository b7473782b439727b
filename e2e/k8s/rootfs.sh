#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes an archive of a Debian root file system, from the mirror that this machine
# uses itself, without the files that match the patterns. Needs root and
# debootstrap.
#
#	rootfs.sh SUITE PACKAGES ARCHIVE PATTERN...
set -euo pipefail
suite=$1 packages=$2 archive=$3
shift 3

root=$archive.new log=$archive.log
mirror=$(apt-get indextargets --format "\$(REPO_URI)" 'Created-By: Packages' "Codename: $suite" | head -n 1)
rm -rf "$root"
debootstrap --variant=minbase --include="$packages" "$suite" "$root" "${mirror:-http://deb.debian.org/debian}" >"$log" 2>&1 || {
	tail -n 20 "$log" >&2
	exit 1
}
cd "$root"
# shellcheck disable=SC2068 # they are patterns
rm -rf $@
tar -cf "$archive.part" .
cd /
mv "$archive.part" "$archive"
rm -rf "$root" "$log"
