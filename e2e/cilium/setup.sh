#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes a real Cilium for the cluster of e2e/k8s, once for each version of it: the
# programs, from a go.mod beside this file (go.mod itself, or 1.15.mod for what
# upgrades come from), and an image around them (Debian with clang, which compiles
# Cilium's BPF programs on the node). Prints a directory with the image as every node
# imports it, by the name of the version, and chart, Cilium's own Helm chart. Needs
# root, docker, debootstrap and gcc, no registry of images.
#
#	setup.sh MODFILE [CACHE]
set -euo pipefail
cd "$(dirname "$0")"
mod=$1 cache=${2:-${PODWEIR_K8S_CACHE:-/var/cache/podweir-k8s}}
suite=bookworm
packages=iproute2,iptables,ipset,bpftool,clang-16
version=$(sed -n 's,.*github.com/cilium/cilium v\([^ ]*\).*,\1,p' "$mod" | head -n 1)
# Three fields, or the agent's API gives its version as " (v-)".
stamp="-X 'github.com/cilium/cilium/pkg/version.ciliumVersion=$version 0000000 2025-01-01T00:00:00Z'"
# What a compile of BPF programs does not use: half of the root file system.
needless="usr/lib/gcc usr/include usr/lib/python3* usr/bin/python3* usr/lib/llvm-16/include usr/lib/llvm-16/build
	usr/lib/*/lib[lt]san.so* usr/lib/*/lib[au]*san.so* usr/lib/*/libclang-16.so* usr/lib/*/gconv usr/lib/*/*.a
	usr/share/zoneinfo usr/share/doc usr/share/locale usr/share/man usr/share/perl* usr/lib/*/perl*
	var/cache/apt/archives/*.deb var/lib/apt/lists/*"

# key prints a short hash of its input.
key() { sha256sum | cut -c1-16; }

programs=$cache/cilium-programs-$version-$( (go env GOVERSION && echo "$stamp" && [ -e /proc/modules ] && echo modules; cat "$mod") | key)
rootfs=$cache/cilium-root-$(echo "$suite $packages $needless" | key).tar
made=$cache/cilium-$version-$( (echo "$programs $rootfs" && cat setup.sh) | key)

# module prints where the sources of Cilium are.
module() {
	go mod download -modfile="$mod" github.com/cilium/cilium
	go list -modfile="$mod" -m -f '{{.Dir}}' github.com/cilium/cilium
}

# source is where what is replaced lies, beside a go.mod that says so.
source=$cache/cilium-source

# replaced prints the name of a go.mod with the replacements that this version needs.
replaced() {
	rm -rf "$source"*
	mkdir "$source"
	cp "$mod" "$source.mod"
	cp "${mod%.mod}.sum" "$source.sum"
	case $version in
	1.15.*) [ -e /proc/modules ] || without_modules ;;
	*) one_constant ;;
	esac
	echo "$source.mod"
}

# without_modules copies Cilium with a difference in one place: a kernel that has no
# modules has loaded none. Cilium 1.15 ends with an error there, so the copy is built on
# such machines alone.
without_modules() {
	tar -C "$(module)" --exclude=./vendor --exclude=./Documentation --exclude=./test --exclude=./examples -c . |
		tar -C "$source" --no-same-permissions -x
	chmod -R u+w "$source"
	sed -i '/^func listLoadedModules/,/^}/ s,^\tif err != nil {,\tif errors.Is(err\, os.ErrNotExist) {\n\t\treturn nil\, nil\n\t}\n&,' \
		"$source/pkg/datapath/linux/modules/modules_linux.go"
	grep -q 'errors.Is(err, os.ErrNotExist) {$' "$source/pkg/datapath/linux/modules/modules_linux.go"
	go mod edit -replace "github.com/cilium/cilium=$source" "$source.mod"
}

# one_constant is a module that the module proxy does not have; Cilium's operator uses
# one constant of it.
one_constant() {
	local lacks=sigs.k8s.io/mcs-api/controllers
	printf 'module %s\n' "$lacks" >"$source/go.mod"
	printf 'package controllers\n\nconst DerivedServiceAnnotation = "multicluster.kubernetes.io/derived-service"\n' >"$source/controllers.go"
	go mod edit -require "$lacks@v0.5.2" -replace "$lacks=$source" "$source.mod"
}

# build compiles the programs, into a directory that gets its name when all are
# there.
build() {
	[ -d "$programs" ] && return
	rm -rf "$cache/cilium-programs-$version"-*
	local into=$cache/cilium-programs-new gomod
	gomod=$(replaced)
	echo "setup: building Cilium $version, 20 minutes of processor time where Go's cache is cold" >&2
	rm -rf "$into"
	mkdir "$into"
	CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -modfile="$gomod" -trimpath -tags ipam_provider_operator \
		-ldflags "-s -w $stamp" -o "$into/" tool
	# Go names a program after the last part of its path.
	mv "$into/daemon" "$into/cilium-agent"
	mv "$into/operator" "$into/cilium-operator-generic"
	mv "$into/mount" "$into/cilium-mount"
	mv "$into/sysctlfix" "$into/cilium-sysctlfix"
	rm -rf "$source"*
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
	[ -d "$made" ] && return # another checkout made it meanwhile
	rm -rf "$cache/cilium-$version"-*
	local cilium new=$cache/cilium-image-new root=$cache/cilium-image-new/root name=localhost/cilium/cilium:$version
	cilium=$(module)
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
	install -t "$root" "$cilium"/plugins/cilium-cni/{install-plugin,cni-uninstall}.sh "$cilium/images/cilium/init-container.sh"
	mkdir -p "$root/var/lib/cilium" "$root/home/cilium"
	cp -r --no-preserve=mode "$cilium/bpf" "$root/var/lib/cilium/"
	rm -rf "$root/var/lib/cilium/bpf/tests"
	# The kernel loads what it can by itself, and a container cannot. The name is a link
	# to a path of the machine's.
	rm -f "$root/usr/sbin/modprobe"
	printf '#!/bin/sh\n' | install -D /dev/stdin "$root/usr/sbin/modprobe"
	# Debian's bpftool asks libcap whether it has CAP_BPF and CAP_PERFMON, and stops when
	# it has not. The nodes have SYS_ADMIN instead, which the kernel takes for both, because
	# older Docker does not know their names. This answers every such question with yes; the
	# kernel still decides.
	echo 'int cap_get_flag(void *c, int capability, int flag, int *value) { *value = 1; return 0; }' |
		gcc -shared -fPIC -x c -o "$root/usr/lib/bpftool-caps.so" -
	mv "$root/usr/sbin/bpftool" "$root/usr/sbin/bpftool.real"
	install /dev/stdin "$root/usr/sbin/bpftool" <<-'WRAPPER'
		#!/bin/sh
		LD_PRELOAD=/usr/lib/bpftool-caps.so exec /usr/sbin/bpftool.real "$@"
	WRAPPER
	tar -C "$root" --numeric-owner -c . | docker import \
		--change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
		--change 'WORKDIR /home/cilium' --change 'CMD ["/usr/bin/cilium-dbg"]' - "$name" >/dev/null
	docker save -o "$new/cilium-$version.tar" "$name"
	docker rmi "$name" >/dev/null
	rm -rf "$root"
	cp -r --no-preserve=mode "$cilium/install/kubernetes/cilium" "$new/chart"
	mv "$new" "$made"
}

# Two checkouts share the cache; one of them fills it. What is made needs no turn.
if [ ! -d "$made" ]; then
	mkdir -p "$cache"
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
fi
echo "$made localhost/cilium/cilium:$version"
