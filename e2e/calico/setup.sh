#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes a real Calico for the rows of e2e/matrix, once for each version of it: its
# agent and CNI plugin, from the Go module beside this file, and an image around them
# (Debian with what Calico's own image has). Prints a directory with image.tar and
# Calico's own manifests calico-vxlan.yaml and canal.yaml, the second with the flanneld
# that ../flannel/setup.sh makes. Needs root, docker and debootstrap, no registry of images.
#
#	setup.sh [CACHE]
set -euo pipefail
cd "$(dirname "$0")"
cache=${1:-${PODWEIR_K8S_CACHE:-/var/cache/podweir-k8s}}
suite=bookworm
packages=iproute2,iptables,nftables,ipset,conntrack,runit,procps
needless="var/cache/apt/archives/*.deb var/lib/apt/lists/* usr/share/doc usr/share/locale usr/share/man"
# The release that the pinned commit is, which the programs are told.
version=v3.31.0
module=github.com/projectcalico/calico
name=localhost/calico/calico:$version

# key prints a short hash of its input.
key() { sha256sum | cut -c1-16; }

programs=$cache/calico-programs-$( (go env GOVERSION && echo $version && cat go.mod) | key)
rootfs=$cache/calico-root-$(echo "$suite $packages $needless" | key).tar
flannel=$(sed -n 's,^	github.com/flannel-io/flannel v\([^ ]*\).*,\1,p' ../flannel/go.mod)
made=$cache/calico-$version-$( (echo "$programs $rootfs $flannel" && cat setup.sh) | key)

# build compiles the programs, into a directory that gets its name when all are there.
# Without -trimpath: podweir reads Calico's release from the flags of the build, as those
# of Calico's own builds can be read.
build() {
	[ -d "$programs" ] && return
	rm -rf "$cache"/calico-programs-*
	local into=$cache/calico-programs-new
	echo "setup: building Calico $version, 5 minutes of processor time where Go's cache is cold" >&2
	rm -rf "$into"
	mkdir "$into"
	CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -ldflags "-s -w -X $module/pkg/buildinfo.Version=$version" -o "$into/" tool
	mv "$into" "$programs"
}

# bootstrap makes the root file system of the image.
bootstrap() {
	[ -f "$rootfs" ] && return
	rm -rf "$cache"/calico-root-*.tar*
	echo "setup: making the root file system of Calico's image" >&2
	# shellcheck disable=SC2086 # patterns, which rootfs.sh expands
	(set -f; ../k8s/rootfs.sh "$suite" "$packages" "$rootfs" $needless)
}

# image puts the programs and scripts to the places where Calico's two images have them.
image() {
	[ -d "$made" ] && return
	rm -rf "$cache/calico-$version"-*
	local source new=$cache/calico-image-new root=$cache/calico-image-new/root
	source=$(go list -m -f '{{.Dir}}' $module)
	echo "setup: making the image of Calico $version" >&2
	rm -rf "$new"
	mkdir -p "$root"
	tar -C "$root" -xf "$rootfs"
	# A Go module keeps no modes.
	tar -C "$source/node/filesystem" --mode=0755 -c . | tar -C "$root" --keep-directory-symlink -x
	install -t "$root/bin" "$programs/calico-node"
	install -D -t "$root/opt/cni/bin" "$programs/calico" "$programs/install"
	ln "$root/opt/cni/bin/calico" "$root/opt/cni/bin/calico-ipam"
	# The kernel loads what it can by itself, and a container cannot.
	printf '#!/bin/sh\n' | install -D /dev/stdin "$root/usr/sbin/modprobe"
	tar -C "$root" --numeric-owner -c . | docker import \
		--change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'CMD ["start_runit"]' - "$name" >/dev/null
	docker save -o "$new/image.tar" "$name"
	docker rmi "$name" >/dev/null
	rm -rf "$root"
	for manifest in calico-vxlan canal; do
		sed "s,image: .*calico/\(node\|cni\):$version,image: $name,; s,image: .*/flannel:.*,image: localhost/flannel/flannel:v$flannel," \
			"$source/manifests/$manifest.yaml" >"$new/$manifest.yaml"
	done
	mv "$new" "$made"
}

mkdir -p "$cache"
# Two checkouts share the cache; one of them fills it.
exec 9>"$cache/calico.lock"
flock 9
build &
builder=$!
bootstrap || { kill "$builder"; exit 1; }
wait "$builder"
# dockerd is one of the cluster's parts.
../k8s/setup.sh "$cache" >/dev/null
image
echo "$made"
