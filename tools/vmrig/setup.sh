#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Fetches what vmrig boots into ${XDG_CACHE_HOME:-/var/cache}/podweir-vmrig, where it is
# missing: kernels, what runs them, and the initial file system of each. apt does it, which
# checks signatures, in a state of its own: the machine's sources, lists and packages stay
# as they are. No script of a package runs.
#
# setup.sh [-update] [-mirror URI]
#   -update       look for newer kernels and programs, too
#   -mirror URI   Debian's archive, if the machine's own sources name none
set -euo pipefail
cd "$(dirname "$0")"

update='' mirror=''
while [ $# -gt 0 ]; do
	case $1 in
	-update) update=1 ;;
	-mirror) mirror=${2:?URI} && shift ;;
	*)
		echo "usage: setup.sh [-update] [-mirror URI]" >&2
		exit 2
		;;
	esac
	shift
done
if [ "$(uname -m)" != x86_64 ]; then
	echo "vmrig: amd64 kernels are all that the rig knows, this machine is $(uname -m)" >&2
	exit 1
fi
../setup.sh kernels
PATH="$PATH:/usr/sbin:/sbin"
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
cache=${XDG_CACHE_HOME:-/var/cache}/podweir-vmrig
mkdir -p "$cache/kernels"
exec {lock}>"$cache/lock"
flock "$lock"

# clean ends what runs in the background, which holds the lock too, and removes what is half
# done: also what a run left behind that was killed.
clean() {
	local group
	for group in $(jobs -p); do kill -- "-$group" 2>/dev/null || true; done
	wait
	rm -rf "$cache"/{,kernels/}unpacking-* "$cache"/initramfs-* "$cache"/apt/*/debs
}
clean
trap clean EXIT
trap 'exit 130' INT TERM

# archive is where the machine's first source with a suite that only Debian has gets it from:
# it is never guessed.
archive() {
	# shellcheck disable=SC2016 # apt expands these
	apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk '$2 ~ /^(bullseye|bookworm|trixie|forky|duke|sid|(old)*stable|testing|unstable)$/ && $3 == "main" && !found++ { sub("/$", "", $1); print $1 }'
}

# fetch SUITE FOLLOW DIR PACKAGE... unpacks packages of a release into a directory, with
# those that they need if their names match FOLLOW.
fetch() {
	local suite=$1 follow=$2 dir=$3 own=$cache/apt/$1 keys='' from record name
	shift 3
	local names=("$@") level=("$@")
	from=${mirror:-$(archive)}
	if [ -z "$from" ]; then
		echo "vmrig: no source of this machine is Debian's archive: name one with -mirror" >&2
		return 1
	fi
	if [ -e /usr/share/keyrings/debian-archive-keyring.gpg ]; then
		keys=' signed-by=/usr/share/keyrings/debian-archive-keyring.gpg'
	fi
	mkdir -p "$own"/{lists,archives}/partial "$own/none"
	: >"$own/status"
	echo "deb [arch=amd64$keys] $from $suite main" >"$own/sources.list"
	local options=(
		-o Dir::Etc::sourcelist="$own/sources.list" -o Dir::Etc::sourceparts="$own/none"
		-o Dir::Etc::preferences="$own/none/preferences" -o Dir::Etc::preferencesparts="$own/none"
		-o Dir::State="$own" -o Dir::State::status="$own/status" -o Dir::Cache="$own"
		-o APT::Architecture=amd64 -o APT::Architectures=amd64
		# These directories are not apt's user's.
		-o APT::Sandbox::User=root
		-o Acquire::Languages=none -o Acquire::Retries=3
	)
	apt-get "${options[@]}" update -qq
	while [ ${#level[@]} -gt 0 ]; do
		record=$(apt-cache "${options[@]}" show --no-all-versions "${level[@]}")
		level=()
		# Of alternatives the first; a name ends at its version or its architecture.
		for name in $(sed -n 's/^Depends: //p' <<<"$record" | tr , '\n' | sed -E 's/[|(:].*//; s/ //g' | grep -E "$follow"); do
			if [[ " ${names[*]} " != *" $name "* ]]; then
				names+=("$name")
				level+=("$name")
			fi
		done
	done
	rm -rf "$own/debs"
	mkdir "$own/debs"
	(cd "$own/debs" && apt-get "${options[@]}" download -qq "${names[@]}")
	for name in "$own"/debs/*.deb; do
		dpkg-deb -x "$name" "$dir"
	done
	rm -rf "$own/debs"
}

# kernel NAME SUITE VERSION fetches a release's default cloud kernel, whose version has to
# begin so. Cloud kernels are small and have what a dataplane needs: BTF, netkit where the
# version has it, every qdisc as a module.
kernel() {
	local dir=$cache/kernels/$1 new version
	[ -n "$update" ] || [ ! -e "$dir/vmlinuz" ] || return 0
	new=$(mktemp -d "$cache/kernels/unpacking-XXXXXX")
	# Newer releases split the image, and need linux-base for the list of what is built in.
	fetch "$2" '^linux-(image|binary|modules|base)-' "$new" linux-image-cloud-amd64
	if [ ! -e "$new/lib/modules" ]; then
		mkdir -p "$new/lib"
		mv "$new/usr/lib/modules" "$new/lib/modules"
	fi
	version=$(ls "$new/lib/modules")
	if [[ $version != $3* || $version == *$'\n'* ]]; then
		echo "vmrig: the packages of $2 hold modules of \"$version\", want one of $3" >&2
		return 1
	fi
	find "$new/boot" "$new/lib/modules/$version" -maxdepth 1 -name 'vmlinuz*' -exec mv {} "$new/vmlinuz" \; 2>/dev/null || true
	if [ ! -e "$new/vmlinuz" ]; then
		echo "vmrig: the packages of $2 hold no vmlinuz" >&2
		return 1
	fi
	# Every kernel can load them as they are then.
	find "$new/lib/modules" -name '*.ko.xz' -print0 | xargs -0r xz -d --
	depmod -b "$new" "$version"
	chmod 755 "$new"
	rm -rf "$dir"
	mv "$new" "$dir"
}

# programs NAME FOLLOW PACKAGE... fetches programs of Debian 13 into a directory of that
# name, with their own loader and libraries: Debian 12 has no virtiofsd, and its qemu (7.2)
# breaks cmpxchg16b, on which kernels from 6.12 on die.
programs() {
	local dir=$cache/$1 new
	[ -n "$update" ] || [ ! -e "$dir" ] || return 0
	new=$(mktemp -d "$cache/unpacking-XXXXXX")
	fetch trixie "$2" "$new" "${@:3}"
	chmod 755 "$new"
	rm -rf "$dir"
	mv "$new" "$dir"
}

# initramfs NAME makes what a kernel boots from: busybox, the script init, and the modules
# that reach the host's files, numbered in the order in which they load. Some are built into
# some kernels.
initramfs() {
	local dir=$cache/kernels/$1 busybox=$cache/busybox/usr/bin/busybox new needs file n=10
	new=$(mktemp -d "$cache/initramfs-XXXXXX")
	mkdir -p "$new"/{bin,dev,lower,modules,new,proc,sys,written}
	cp "$busybox" "$new/bin/busybox"
	install -m 755 init.sh "$new/init"
	needs=$(modprobe -d "$dir" -S "$(ls "$dir/lib/modules")" -a --show-depends virtio_pci virtiofs overlay)
	# "insmod FILE OPTIONS"
	while read -r file; do
		cp "$file" "$new/modules/$((n++))-${file##*/}"
	done < <(awk '$1 == "insmod" && !seen[$2]++ { print $2 }' <<<"$needs")
	(cd "$new" && find . | "$busybox" cpio -o -H newc >"$dir/initramfs.new" 2>/dev/null)
	mv "$dir/initramfs.new" "$dir/initramfs"
	rm -rf "$new"
}

# Unpacking keeps one processor busy. Each has a process group, which can be ended as one.
set -m
kernel 6.1 bookworm 6.1. </dev/null &
old=$!
kernel newest sid '' </dev/null &
new=$!
set +m
kernel 6.12 trixie 6.12.
# Libraries, and what qemu's own packages are split into.
programs host '^lib|^qemu-system-|^seabios$' qemu-system-x86 virtiofsd
programs busybox '^$' busybox-static
wait "$old"
wait "$new"
for name in 6.1 6.12 newest; do
	initramfs "$name"
	echo "kernel $name is $(ls "$cache/kernels/$name/lib/modules")"
done
