#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# CNI plugin tuning: CHECK fails forever for a sysctl of several numbers, right after an ADD that set it.
#
# One would guess: CHECK passes while the namespace is as ADD left it. The three numbers of
#   net.ipv4.tcp_rmem are separated by spaces, as in each sysctl.conf.
# Seen: CHECK compares the text of the configuration with the text that the kernel shows, and the
#   kernel separates by tabs whatever was written. Only tabs in the configuration
#   ("4096\t131072\t6291456") satisfy CHECK. The same goes for ip_local_port_range.
# Who is hurt: whoever tunes TCP buffers for pods with this plugin and has a runtime or a test that
#   calls CHECK: each healthy pod is reported as broken.
# Version: github.com/containernetworking/plugins v1.10.0 (cmdCheck in plugins/meta/tuning), Linux 6.18.44.
# Output:
#   spaces: ADD 0, tcp_rmem 4096 131072 6291456, CHECK 1
#   tabs: ADD 0, tcp_rmem 4096 131072 6291456, CHECK 0
#   one number: ADD 0, CHECK 0
#
# Needs root, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-tuning-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
export GOFLAGS=-modcacherw GOMODCACHE=${work}/mod GOBIN=${work}
CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/meta/tuning@v1.10.0 2>/dev/null

ip netns add "${ns}"
export CNI_CONTAINERID=finding CNI_NETNS=/run/netns/${ns} CNI_IFNAME=lo CNI_PATH=${work}

verb() { # VERB SYSCTL VALUE: prints the exit code
  local code=0
  printf '{"cniVersion":"1.0.0","name":"finding","type":"tuning","dataDir":"%s","sysctl":{"%s":"%s"},"prevResult":{"cniVersion":"1.0.0"}}' \
    "${work}/backup" "$2" "$3" | CNI_COMMAND=$1 ./tuning >"${work}/said" 2>&1 || code=1
  echo "${code}"
}

rmem() { ip netns exec "${ns}" cat /proc/sys/net/ipv4/tcp_rmem | tr '\t' ' '; }

got=$(
  echo "spaces: ADD $(verb ADD net.ipv4.tcp_rmem '4096 131072 6291456'), tcp_rmem $(rmem), CHECK $(verb CHECK net.ipv4.tcp_rmem '4096 131072 6291456')"
  echo "tabs: ADD $(verb ADD net.ipv4.tcp_rmem '4096\t131072\t6291456'), tcp_rmem $(rmem), CHECK $(verb CHECK net.ipv4.tcp_rmem '4096\t131072\t6291456')"
  echo "one number: ADD $(verb ADD net.ipv4.tcp_fin_timeout 31), CHECK $(verb CHECK net.ipv4.tcp_fin_timeout 31)"
)
echo "${got}"
[[ ${got} == 'spaces: ADD 0, tcp_rmem 4096 131072 6291456, CHECK 1
tabs: ADD 0, tcp_rmem 4096 131072 6291456, CHECK 0
one number: ADD 0, CHECK 0' ]] || exit 1
