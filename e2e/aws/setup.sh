#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes what AWS's rows of the CNI matrix are made of, once for each version of it:
# the programs of the Amazon VPC CNI and of two releases of its Network Policy Agent,
# from the Go module ../npa, as four archives of images that a node imports, and
# AWS's own chart beside them. Prints the directory. Needs clang, bpftool and what
# ../k8s/setup.sh needs, which makes the root file system.
set -euo pipefail
cd "$(dirname "$0")"
cache=${PODWEIR_K8S_CACHE:-/var/cache/podweir-k8s}
read -r _ node < <(../k8s/setup.sh)
rootfs=$cache/${node/:/-}.tar
vpccni=github.com/aws/amazon-vpc-cni-k8s agent=github.com/aws/aws-network-policy-agent sdk=github.com/aws/aws-ebpf-sdk-go
# As AWS tags its images, so that the chart's own tags fit them.
cni_tag=$(sed -n "s,^.*$vpccni \(v[^ ]*\).*,\1,p" ../npa/go.mod)
npa_tag=$(sed -n "s,^.*$agent \(v[^ ]*\).*,\1,p" ../npa/go.mod)
# The newest agent cannot be a requirement of ../npa: it wants modules that no proxy has.
newest=v1.5.0

made=$cache/aws-$( (go env GOVERSION && uname -r && echo "$node" &&
	find setup.sh ../npa -type f | LC_ALL=C sort | xargs cat) | sha256sum | cut -c1-16)

# archive makes an archive of an image out of a tar archive of its files:
#	archive NAME:TAG FILES CHANGE...
archive() {
	local image=localhost/podweir/$1 files=$2 changes=()
	shift 2
	for change; do changes+=(--change "$change"); done
	docker import "${changes[@]}" "$files" "$image" >/dev/null
	docker save -o "$into/$(basename "${image/:/-}").tar" "$image"
	docker rmi "$image" >/dev/null
}

# pack is tar with what differs from run to run left out.
pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 "$@"; }

# build compiles the programs by the names that AWS's Makefiles give them.
build() {
	export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
	cd ../npa
	echo "setup: building the VPC CNI $cni_tag" >&2
	go build -trimpath -ldflags '-s -w' -o "$work/" tool .
	mv "$work"/{routed-eni-cni-plugin,aws-cni}
	mv "$work"/{egress-cni-plugin,egress-cni}
	local new=$work/source
	echo "setup: building the Network Policy Agent $npa_tag and $newest" >&2
	mv "$work"/{aws-network-policy-agent,"npa-$npa_tag/controller"}
	mv "$work"/{cli,"npa-$npa_tag/aws-eks-na-cli"}
	./compile.sh "$work/bpf"
	mv "$work"/bpf/*.o "$work/npa-$npa_tag/"

	# The newest, with the dependencies of ../npa and two packages of its own SDK that are
	# not in the one that is there. It wants a newer Go, too, and does not need it.
	copy "$(GOTOOLCHAIN=auto go mod download -json $agent@$newest | sed -n 's/^.*"Dir": "\(.*\)",$/\1/p')" "$new/agent"
	copy "$(go list -m -f '{{.Dir}}' $sdk)" "$new/sdk"
	cp -r sdk/* "$new/sdk/pkg/"
	printf 'module %s\n\ngo 1.26\n' $agent >"$new/agent/go.mod"
	cp go.mod "$new/newest.mod"
	cp go.sum "$new/newest.sum"
	go mod edit -replace "$agent=$new/agent" -replace "$sdk=$new/sdk" "$new/newest.mod"
	go build -modfile "$new/newest.mod" -mod=mod -trimpath -ldflags '-s -w' -o "$new/" $agent $agent/cmd/cli
	mv "$new/aws-network-policy-agent" "$work/npa-$newest/controller"
	mv "$new/cli" "$work/npa-$newest/aws-eks-na-cli"
	./compile.sh "$work/bpf" "$new/agent"
	mv "$work"/bpf/*.o "$work/npa-$newest/"
	cd ../aws
}

# copy copies a directory of the module cache, which is read-only.
copy() {
	mkdir -p "$2"
	cp -r "$1/." "$2"
	chmod -R u+w "$2"
}

# images makes those of AWS's chart. That of aws-node is made on a node's root file
# system: ipamd runs iptables.
images() {
	local source tag
	source=$(cd ../npa && go list -m -f '{{.Dir}}' $vpccni)
	copy "$source/charts/aws-vpc-cni" "$into/chart"

	mkdir -p "$work/aws-node/app" "$work/init/init"
	cp "$source"/misc/{10-aws.conflist,eni-max-pods.txt} "$work/aws-node/app/"
	mv "$work"/{aws-cni,egress-cni,aws-k8s-agent,aws-vpc-cni,grpc-health-probe} "$work/aws-node/app/"
	mv "$work"/{aws-vpc-cni-init,host-local,loopback,bandwidth,portmap,tuning} "$work/init/init/"
	cp "$rootfs" "$work/aws-node.tar"
	pack -C "$work/aws-node" -rf "$work/aws-node.tar" ./app
	pack -C "$work/init" -cf "$work/init.tar" .
	archive "amazon-k8s-cni:$cni_tag" "$work/aws-node.tar" 'WORKDIR /app' 'ENTRYPOINT ["/app/aws-vpc-cni"]'
	archive "amazon-k8s-cni-init:$cni_tag" "$work/init.tar" 'WORKDIR /init' 'CMD ["/init/aws-vpc-cni-init"]'
	for tag in "$npa_tag" "$newest"; do
		pack -C "$work/npa-$tag" -cf "$work/npa.tar" .
		archive "aws-network-policy-agent:$tag" "$work/npa.tar" 'WORKDIR /' 'ENTRYPOINT ["/controller"]'
	done
}

exec 9>"$cache/aws.lock"
flock 9
if [ ! -d "$made" ]; then
	rm -rf "$cache"/aws-[0-9a-f]* "$cache/aws-new"
	into=$cache/aws-new
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$into" "$work/bpf" "$work/npa-$npa_tag/tmp" "$work/npa-$newest/tmp"
	build
	images
	mv "$into" "$made"
fi
echo "$made"
