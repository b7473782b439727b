#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes a real Cilium for the cluster of e2e/k8s, once for each version of it: the
# programs, from the Go module beside this file, and an image around them (Debian
# with clang, which compiles Cilium's BPF programs on the node). Prints a directory
# with image.tar, the image as every node imports it, and chart, Cilium's own Helm
# chart. Needs root, docker, debootstrap and gcc, no registry of images.
#
#	setup.sh [CACHE]
set -euo pipefail
cd "$(dirname "$0")"
cache=${1:-${PODWEIR_K8S_CACHE:-/var/cache/podweir-k8s}}
suite=bookworm
packages=iproute2,iptables,ipset,bpftool,clang-16
version=$(sed -n 's,.*github.com/cilium/cilium v\([^ ]*\).*,\1,p' go.mod)
# Three fields, or the agent's API gives its version as " (v-)".
stamp="-X 'github.com/cilium/cilium/pkg/version.ciliumVersion=$version 0000000 2025-01-01T00:00:00Z'"
# What a compile of BPF programs does not use: half of the root file system.
needless="usr/lib/gcc usr/include usr/lib/python3* usr/bin/python3* usr/lib/llvm-16/include usr/lib/llvm-16/build
	usr/lib/*/lib[lt]san.so* usr/lib/*/lib[au]*san.so* usr/lib/*/libclang-16.so* usr/lib/*/gconv usr/lib/*/*.a
	usr/share/zoneinfo usr/share/doc usr/share/locale usr/share/man usr/share/perl* usr/lib/*/perl*
	var/cache/apt/archives/*.deb var/lib/apt/lists/*"

# key prints a short hash of its input.
key() { sha256sum | cut -c1-16; }

programs=$cache/cilium-programs-$( (go env GOVERSION && echo "$stamp" && [ -e /proc/modules ] && echo modules; cat go.mod) | key)
rootfs=$cache/cilium-root-$(echo "$suite $packages $needless" | key).tar
made=$cache/cilium-$version-$( (echo "$programs $rootfs" && cat setup.sh bpftool-caps.c) | key)

# module prints where the sources of Cilium are.
module() {
	go mod download github.com/cilium/cilium
	go list -m -f '{{.Dir}}' github.com/cilium/cilium
}

# without_modules prints the name of a go.mod that builds a copy of Cilium which
# differs in one place: a kernel that has no modules has loaded none. Cilium ends
# with an error there, so the copy is built on such machines alone.
without_modules() {
	local copy=$cache/cilium-source
	rm -rf "$copy"
	mkdir "$copy"
	tar -C "$(module)" --exclude=./vendor --exclude=./Documentation --exclude=./test --exclude=./examples -c . |
		tar -C "$copy" --no-same-permissions -x
	chmod -R u+w "$copy"
	sed -i '/^func listLoadedModules/,/^}/ s,^\tif err != nil {,\tif errors.Is(err\, os.ErrNotExist) {\n\t\treturn nil\, nil\n\t}\n&,' \
		"$copy/pkg/datapath/linux/modules/modules_linux.go"
	grep -q 'errors.Is(err, os.ErrNotExist) {$' "$copy/pkg/datapath/linux/modules/modules_linux.go"
	cp go.sum "$copy.sum"
	(cat go.mod && echo "replace github.com/cilium/cilium => $copy") >"$copy.mod"
	echo "$copy.mod"
}

# build compiles the programs, into a directory that gets its name when all are
# there.
build() {
	[ -d "$programs" ] && return
	rm -rf "$cache"/cilium-programs-*
	local into=$cache/cilium-programs-new gomod=go.mod
	[ -e /proc/modules ] || gomod=$(without_modules)
	echo "setup: building Cilium $version, 15 minutes of processor time where Go's cache is cold" >&2
	rm -rf "$into"
	mkdir "$into"
	CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -modfile="$gomod" -trimpath -tags ipam_provider_operator \
		-ldflags "-s -w $stamp" -o "$into/" tool
	# Go names a program after the last part of its path.
	mv "$into/daemon" "$into/cilium-agent"
	mv "$into/operator" "$into/cilium-operator-generic"
	mv "$into/mount" "$into/cilium-mount"
	mv "$into/sysctlfix" "$into/cilium-sysctlfix"
	rm -rf "$cache"/cilium-source*
	mv "$into" "$programs"
}

# bootstrap makes the root file system of the image.
bootstrap() {
	[ -f "$rootfs" ] && return
	rm -rf "$cache"/cilium-root-*.tar*
	echo "setup: making the root file system of Cilium's image" >&2
	# shellcheck disable=SC2086 # patterns, which rootfs.sh expands
	(set -f; ../k8s/rootfs.sh "$suite" "$packages" "$rootfs" $needless)
}

# image puts the programs into the root file system, at the places where Cilium's
# own image has them.
image() {
	[ -d "$made" ] && return
	rm -rf "$cache/cilium-$version"-*
	local source new=$cache/cilium-image-new root=$cache/cilium-image-new/root name=localhost/cilium/cilium:$version
	source=$(module)
	echo "setup: making the image of Cilium $version" >&2
	rm -rf "$new"
	mkdir -p "$root"
	tar -C "$root" -xf "$rootfs"
	find "$root/usr/lib/llvm-16/bin" -type f ! -name clang -delete
	install -D -t "$root/opt/cni/bin" "$programs/cilium-cni"
	install -D -t "$root/cni" "$loopback"
	install -t "$root/usr/bin" "$programs"/cilium-[adoms]*
	ln -s cilium-dbg "$root/usr/bin/cilium"
	ln -sf clang-16 "$root/usr/bin/clang"
	install -t "$root" "$source"/plugins/cilium-cni/{install-plugin,cni-uninstall}.sh "$source/images/cilium/init-container.sh"
	mkdir -p "$root/var/lib/cilium" "$root/home/cilium"
	cp -r --no-preserve=mode "$source/bpf" "$root/var/lib/cilium/"
	rm -rf "$root/var/lib/cilium/bpf/tests"
	# The kernel loads what it can by itself, and a container cannot.
	printf '#!/bin/sh\n' | install -D /dev/stdin "$root/usr/sbin/modprobe"
	gcc -shared -fPIC -o "$root/usr/lib/bpftool-caps.so" bpftool-caps.c
	mv "$root/usr/sbin/bpftool" "$root/usr/sbin/bpftool.real"
	install /dev/stdin "$root/usr/sbin/bpftool" <<-'WRAPPER'
		#!/bin/sh
		LD_PRELOAD=/usr/lib/bpftool-caps.so exec /usr/sbin/bpftool.real "$@"
	WRAPPER
	tar -C "$root" --numeric-owner -c . | docker import \
		--change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
		--change 'WORKDIR /home/cilium' --change 'CMD ["/usr/bin/cilium-dbg"]' - "$name" >/dev/null
	docker save -o "$new/image.tar" "$name"
	docker rmi "$name" >/dev/null
	rm -rf "$root"
	cp -r --no-preserve=mode "$source/install/kubernetes/cilium" "$new/chart"
	mv "$new" "$made"
}

mkdir -p "$cache"
# Two checkouts share the cache; one of them fills it.
exec 9>"$cache/cilium.lock"
flock 9
build &
builder=$!
bootstrap || { kill "$builder"; exit 1; }
wait "$builder"
# The cluster's parts, dockerd and the plugin loopback among them.
components=$(../k8s/setup.sh "$cache")
loopback=${components% *}/cni/loopback
image
echo "$made localhost/cilium/cilium:$version"
