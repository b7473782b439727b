#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes what AWS's row of the CNI matrix is made of, once for each version of it:
# the programs of the Amazon VPC CNI and of its Network Policy Agent, from the Go
# modules vpccni and ../npa, as three archives of images that a node imports, and
# AWS's own chart beside them. Prints the directory. Needs clang and what
# ../k8s/setup.sh needs, which makes the root file system.
set -euo pipefail
cd "$(dirname "$0")"
cache=${PODWEIR_K8S_CACHE:-/var/cache/podweir-k8s}
read -r _ node < <(../k8s/setup.sh)
rootfs=$cache/${node/:/-}.tar
vpccni=github.com/aws/amazon-vpc-cni-k8s
# As AWS tags its images, so that the chart's own tags fit them.
cni_tag=$(sed -n "s,^.*$vpccni \(v[^ ]*\).*,\1,p" vpccni/go.mod)
npa_tag=$(sed -n 's,^.*github.com/aws/aws-network-policy-agent \(v[^ ]*\).*,\1,p' ../npa/go.mod)

made=$cache/aws-$( (go env GOVERSION && uname -r && echo "$node" &&
	cat setup.sh vpccni/go.mod ../npa/go.mod ../npa/*.go ../npa/ctypes/*.go) | sha256sum | cut -c1-16)

# archive makes an archive of an image out of a tar archive of its files:
#	archive NAME:TAG FILES CHANGE...
archive() {
	local image=localhost/podweir/$1 files=$2 changes=()
	shift 2
	for change; do changes+=(--change "$change"); done
	docker import "${changes[@]}" "$files" "$image" >/dev/null
	docker save -o "$into/$(basename "${image%:*}").tar" "$image"
	docker rmi "$image" >/dev/null
}

# pack is tar with what differs from run to run left out.
pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 "$@"; }

# build compiles the programs by the names that AWS's Makefiles give them.
build() {
	export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
	echo "setup: building the VPC CNI $cni_tag" >&2
	(cd vpccni && go build -trimpath -ldflags '-s -w' -o "$work/cni/" tool)
	mv "$work/cni/routed-eni-cni-plugin" "$work/cni/aws-cni"
	mv "$work/cni/egress-cni-plugin" "$work/cni/egress-cni"
	echo "setup: building the Network Policy Agent $npa_tag" >&2
	# The same flags for both: netgo makes another package net, and all above it.
	(cd ../npa && go build -trimpath -tags netgo,ebpf,core -ldflags '-s -w' -o "$work/npa/" tool &&
		go run -trimpath -tags netgo,ebpf,core . compile -dir "$work/bpf" -headers "$PWD/../../bpf/headers")
	mv "$work/npa/aws-network-policy-agent" "$work/npa/controller"
	mv "$work/npa/cli" "$work/npa/aws-eks-na-cli"
	cp "$work"/bpf/*.o "$work/npa/"
}

# images makes the three of AWS's chart. That of aws-node is made on a node's root
# file system: ipamd runs iptables.
images() {
	local source
	source=$(cd vpccni && go list -m -f '{{.Dir}}' $vpccni)
	cp -r "$source/charts/aws-vpc-cni" "$into/chart"
	chmod -R u+w "$into/chart"

	mkdir -p "$work/aws-node/app" "$work/init/init" "$work/npa/tmp"
	cp "$source"/misc/{10-aws.conflist,eni-max-pods.txt} "$work/aws-node/app/"
	mv "$work"/cni/{aws-cni,egress-cni,aws-k8s-agent,aws-vpc-cni,grpc-health-probe} "$work/aws-node/app/"
	mv "$work"/cni/* "$work/init/init/"
	cp "$rootfs" "$work/aws-node.tar"
	pack -C "$work/aws-node" -rf "$work/aws-node.tar" ./app
	pack -C "$work/init" -cf "$work/init.tar" .
	pack -C "$work/npa" -cf "$work/npa.tar" .
	archive "amazon-k8s-cni:$cni_tag" "$work/aws-node.tar" 'WORKDIR /app' 'ENTRYPOINT ["/app/aws-vpc-cni"]'
	archive "amazon-k8s-cni-init:$cni_tag" "$work/init.tar" 'WORKDIR /init' 'CMD ["/init/aws-vpc-cni-init"]'
	archive "aws-network-policy-agent:$npa_tag" "$work/npa.tar" 'WORKDIR /' 'ENTRYPOINT ["/controller"]'
}

exec 9>"$cache/aws.lock"
flock 9
if [ ! -d "$made" ]; then
	rm -rf "$cache"/aws-[0-9a-f]* "$cache/aws-new"
	into=$cache/aws-new
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$into" "$work"/{cni,npa,bpf}
	build
	images
	mv "$into" "$made"
fi
echo "$made"
