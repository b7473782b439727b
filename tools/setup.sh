#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Installs the Debian packages whose commands are missing, and nothing when
# none is. "setup.sh demo" is what the demo needs, "setup.sh test" adds the
# compiler and the linters, "setup.sh e2e" is what the cluster of e2e/k8s needs and
# "setup.sh kernels" what fetches other kernels.
# Needs root only when something is missing.
set -euo pipefail

# command:package
demo=(
	ip:iproute2
	tc:iproute2
	nft:nftables
	iperf3:iperf3
	ethtool:ethtool
	ping:iputils-ping
	sysctl:procps
)
# The version in the names of the LLVM tools is bpf/CLANG_VERSION's:
# objects are committed, and another clang makes other objects.
test=(
	"${demo[@]}"
	gcc:gcc
	git:git
	bpftool:bpftool
	clang-19:clang-19
	clang-format-19:clang-format-19
	llvm-strip-19:llvm-19
	shellcheck:shellcheck
)
e2e=(
	bpftool:bpftool
	dockerd:docker.io
	docker:docker.io
	debootstrap:debootstrap
	git:git
)
kernels=(
	depmod:kmod
	dpkg-deb:dpkg
	xz:xz-utils
)

case "${1:-}" in
demo) wanted=("${demo[@]}") ;;
test) wanted=("${test[@]}") ;;
e2e) wanted=("${e2e[@]}") ;;
kernels) wanted=("${kernels[@]}") ;;
*)
	echo "usage: setup.sh demo|test|e2e|kernels" >&2
	exit 2
	;;
esac

# tc, nft and sysctl live in sbin, which a user's PATH may lack.
PATH="$PATH:/usr/sbin:/sbin"
missing=()
for pair in "${wanted[@]}"; do
	command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ "${#missing[@]}" -eq 0 ]; then
	exit 0
fi

echo "setup: installing ${missing[*]}" >&2
if [ "$(id -u)" -ne 0 ]; then
	echo "setup: that needs root; or install them yourself: apt-get install ${missing[*]}" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null; then
	echo "setup: no apt-get here; install these by other means: ${missing[*]}" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
