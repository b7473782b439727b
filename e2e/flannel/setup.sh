#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes the image of flannel for the rows of e2e/matrix, once for each version of
# it: flanneld and its own programs, what they need of the node's root file
# system, and the stand-in for flannel's CNI binary. Prints the archive and the
# directory of flannel's chart. e2e/k8s/setup.sh must have run.
#
#	setup.sh [CACHE]
set -euo pipefail
cd "$(dirname "$0")"
cache=${1:-${PODWEIR_K8S_CACHE:-/var/cache/podweir-k8s}}
module=github.com/flannel-io/flannel
version=$(sed -n "s,^	$module v\\([^ ]*\\).*,\\1,p" go.mod)
key=$( (go env GOVERSION && cat go.mod plugin/main.go setup.sh) | sha256sum | cut -c1-16)
image=$cache/flannel-$key.tar
name=localhost/flannel/flannel:v$version

# programs are of the node's root file system: init containers call cp, flanneld
# calls iptables, which finds its matches in a directory of its own.
programs() {
	local rootfs
	rootfs=$(find "$cache" -maxdepth 1 -name 'podweir-k8s-node-*.tar' | head -n 1)
	tar -C "$1" -xf "$rootfs" --wildcards ./bin ./sbin ./lib ./lib64 ./usr/lib64 './usr/bin/cp' './usr/bin/ip*tables*' \
		'./usr/sbin/*tables*' './etc/alternatives/*tables*' './usr/lib/*/xtables' './usr/lib/*/ld-linux*' \
		'./usr/lib/*/lib'{c,m,mnl,nftnl,xtables,ip4tc,ip6tc,selinux,pcre2-8,acl,attr,resolv,netfilter_conntrack,nfnetlink}.so'*' 2>/dev/null || true
	test -x "$1/usr/bin/cp" -a -x "$1/usr/sbin/iptables"
}

make_image() {
	[ -f "$image" ] && return
	local root
	root=$(mktemp -d)
	# shellcheck disable=SC2064 # the directory of now
	trap "rm -rf '$root'" RETURN
	echo "setup: building flannel" >&2
	mkdir -p "$root/opt/bin" "$root/run" "$root/tmp"
	# The backend udp, which flanneld includes, is in C.
	CGO_ENABLED=1 go build -trimpath -ldflags "-s -w -X $module/pkg/version.Version=v$version" -o "$root/opt/bin/flanneld" "$module"
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$root/opt/bin/install-conf" "$module/cmd/install_conf"
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$root/flannel" ./plugin
	programs "$root"
	tar -C "$root" -c . | docker import - "$name" >/dev/null
	docker save -o "$image.part" "$name"
	docker rmi "$name" >/dev/null
	mv "$image.part" "$image"
}

exec 9>"$cache/flannel.lock"
flock 9
make_image
echo "$image $(go list -m -f '{{.Dir}}' "$module")/chart/kube-flannel"
