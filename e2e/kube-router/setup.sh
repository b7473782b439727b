#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes a real kube-router for the row of e2e/matrix, once for each version of it: the
# program, from the Go module beside this file, and an image around it (Debian with what
# kube-router calls). Prints the image's archive and kube-router's own manifest. The
# service proxy is off in it, which needs IPVS in the kernel. Needs root, docker and
# debootstrap, no registry of images; e2e/k8s/setup.sh must have run.
#
#	setup.sh [CACHE]
set -euo pipefail
cd "$(dirname "$0")"
cache=${1:-${PODWEIR_K8S_CACHE:-/var/cache/podweir-k8s}}
packages=iproute2,iptables,nftables,ipset,procps
module=github.com/cloudnativelabs/kube-router/v2
version=$(sed -n "s,^require $module \\(v[^ ]*\\).*,\\1,p" go.mod)
name=localhost/kube-router/kube-router:$version
made=$cache/kube-router-$( (go env GOVERSION && cat go.mod setup.sh) | sha256sum | cut -c1-16)

make_image() {
	[ -d "$made" ] && return
	rm -rf "$cache"/kube-router-v*
	local new=$cache/kube-router-new root=$cache/kube-router-new/root
	rm -rf "$new"
	mkdir -p "$root"
	echo "setup: building kube-router $version" >&2
	CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags "-s -w -X $module/pkg/version.Version=$version" -o "$new/" tool
	../k8s/rootfs.sh bookworm "$packages" "$new/root.tar" 'var/cache/apt/archives/*.deb' 'var/lib/apt/lists/*' 'usr/share/doc' 'usr/share/locale' 'usr/share/man'
	tar -C "$root" -xf "$new/root.tar"
	install -D -t "$root/usr/local/bin" "$new/kube-router"
	# The kernel loads what it can by itself, and a container cannot.
	printf '#!/bin/sh\n' | install -D /dev/stdin "$root/usr/sbin/modprobe"
	tar -C "$root" --numeric-owner -c . | docker import \
		--change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'ENTRYPOINT ["kube-router"]' - "$name" >/dev/null
	docker save -o "$new/image.tar" "$name"
	docker rmi "$name" >/dev/null
	rm -rf "$root" "$new/root.tar" "$new/kube-router"
	# Its account in the cluster takes the place of kube-proxy's kubeconfig.
	sed "s,image: .*kube-router\$,image: $name,; s,imagePullPolicy: Always,imagePullPolicy: IfNotPresent,
		s,--run-service-proxy=true,--run-service-proxy=false,; /--kubeconfig=/d
		/- name: kubeconfig\$/,/\(readOnly: true\|path: kubeconfig\)\$/d" \
		"$(go list -m -f '{{.Dir}}' $module)/daemonset/kubeadm-kuberouter-all-features.yaml" >"$new/kube-router.yaml"
	mv "$new" "$made"
}

exec 9>"$cache/kube-router.lock"
flock 9
make_image
echo "$made/image.tar $made/kube-router.yaml"
