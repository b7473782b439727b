#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes what the cluster of e2e/k8s is made of, once for each version of it:
# the components and the reference plugins, from the Go module beside this file,
# the image of a node (Debian with runc) and the image of the pods that make
# traffic. Prints the directory. Needs root, docker and debootstrap, no registry
# of images. KUBERNETES is an older release instead of the module's, such as 1.34,
# which has a file kubernetes-1.34.mod beside it.
#
#	setup.sh [CACHE [KUBERNETES]]
set -euo pipefail
cd "$(dirname "$0")"
cache=${1:-${PODWEIR_K8S_CACHE:-/var/cache/podweir-k8s}}
suite=bookworm
packages=iproute2,iptables,nftables,runc,procps
# What the programs are told of their versions, which modules do not tell them:
# kubectl refuses a server without one, and podweir goes by containerd's.
modfile=go.mod
[ -z "${2:-}" ] || modfile=kubernetes-$2.mod
kubernetes=$(sed -nE 's,^(require|\t)? ?k8s.io/kubernetes (v[^ ]*).*,\2,p' "components/$modfile")
containerd=$(sed -n 's,.*github.com/containerd/containerd/v2 v\([^ ]*\).*,\1,p' components/go.mod)
stamps="-X k8s.io/component-base/version.gitVersion=$kubernetes
	-X github.com/containerd/containerd/v2/version.Version=$containerd"

# key prints a short hash of its input.
key() { sha256sum | cut -c1-16; }

components=$cache/components-$( (go env GOVERSION && echo "$stamps" && cat components/go.mod "components/$modfile") | key)
node=podweir-k8s-node:$(echo "$suite $packages" | key)
rootfs=$cache/${node/:/-}.tar

# compile builds packages of components into a directory: DIR ARGUMENT...
compile() {
	echo "setup: building $*" >&2
	(cd components && go build -trimpath -o "$1/" -ldflags "-s -w ${stamps//$'\n'/ }" "${@:2}")
}

# build compiles the components into a directory that gets its name when all are
# there.
build() {
	[ -d "$components" ] && return
	# Not those of today: the cluster of another checkout may run on them.
	find "$cache" -maxdepth 1 -name 'components-*' -mtime +0 -exec rm -rf {} +
	local into=$cache/components-new plugins
	mkdir -p "$into/cni"
	export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
	compile "$into" go.etcd.io/etcd/server/v3 github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
	mv "$into/server" "$into/etcd" # go names a program after the last part of its path
	compile "$into" helm.sh/helm/v3/cmd/helm
	mv "$into/helm" "$into/helm-3"
	compile "$into" helm.sh/helm/v4/cmd/helm
	compile "$into" -modfile="$modfile" k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubectl,kubelet}
	mapfile -t plugins < <(sed -n 's,^\t\(github.com/containernetworking/[^ ]*\)$,\1,p' components/go.mod)
	compile "$into/cni" "${plugins[@]}"
	mv "$into" "$components"
}

# bootstrap makes the root file system of a node.
bootstrap() {
	[ -f "$rootfs" ] && return
	rm -rf "$cache"/podweir-k8s-node-*.tar*
	echo "setup: making the root file system of a node" >&2
	./rootfs.sh "$suite" "$packages" "$rootfs" 'var/cache/apt/archives/*.deb' 'var/lib/apt/lists/*' 'usr/share/doc' 'usr/share/locale' 'usr/share/man'
}

# Two checkouts share the cache, and two clusters of one; one of them fills it.
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

# Where nothing starts services, dockerd is started, and stays.
if ! docker info >/dev/null 2>&1; then
	echo "setup: starting dockerd; its log is /var/log/dockerd.log" >&2
	# At the usual priority, whatever this script has: nodes inherit it.
	setsid bash -c 'renice -n 0 -p $$ >/dev/null; exec dockerd' </dev/null >/var/log/dockerd.log 2>&1 9>&- &
	for _ in $(seq 100); do
		docker info >/dev/null 2>&1 && break
		sleep 0.2
	done
fi

build &
builder=$!
bootstrap || { kill "$builder"; exit 1; }
wait "$builder"
docker image inspect "$node" >/dev/null 2>&1 || docker import "$rootfs" "$node" >/dev/null

# The image of the pods, which is the sandbox's too: one static program. It is
# built each time: what is in it belongs to the tests.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$work/work" ./work
tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 -c work |
	docker import --change 'ENTRYPOINT ["/work"]' --change 'CMD ["pause"]' - localhost/podweir/work:1 >/dev/null
docker save -o "$components/work.tar" localhost/podweir/work:1
docker rmi localhost/podweir/work:1 >/dev/null
echo "$components $node"
