#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Linux: a pod in a node that is itself a container gets the TCP buffers of the machine outside, not of the node.
#
# One would guess: a new network namespace starts with the settings of the one that it is made in, or else with the
#   kernel's defaults. The kernel's documentation of these settings speaks of neither.
# Seen: tcp_rmem, tcp_wmem and tcp_congestion_control are copied from the machine's first namespace (tcp_sk_init in
#   net/ipv4/tcp_ipv4.c), past the node in between. Others, such as slow start after idle and
#   keepalive, start with the kernel's default, whatever node and machine say. All this happens once, when the
#   namespace is made.
# Who is hurt: whoever measures or tunes throughput in kind, k3d, minikube or LXD: what `docker run --sysctl` or the
#   node's sysctl.d sets is shown on the node, holds for host-network pods, and reaches no other pod. Window and
#   congestion control are those of the laptop or CI machine below, so that the same cluster is fast on one and slow
#   on another. On a plain node one half of a sysctl.d reaches the pods, buffers and BBR, and the other does not.
# Version: Linux 6.18.44, iproute2 6.1.0.
# Output on a machine with a tcp_rmem of its own and BBR:
#   tcp_rmem: machine 4096 131072 33554432, node 8192 65536 1048576, pod 4096 131072 33554432
#   tcp_wmem: machine 4096 16384 4194304, node 8192 65536 1048576, pod 4096 16384 4194304
#   tcp_congestion_control: machine bbr, node reno, pod bbr
#   tcp_slow_start_after_idle: machine 1, node 0, pod 1
#   tcp_keepalive_time: machine 7200, node 600, pod 7200
#   tcp_notsent_lowat: machine 4294967295, node 131072, pod 4294967295
#
# Needs root and iproute2, outside a container. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

# This setting is shown in the machine's first namespace alone, from which the values come.
[[ -e /proc/sys/net/core/netdev_budget ]] || exit 2

node=finding-node-$$
trap 'ip netns del "${node}" 2>/dev/null || true' EXIT
ip netns add "${node}"

in_node() { nsenter --net="/run/netns/${node}" "$@"; }

# The path is resolved anew by each cat, in the namespace that it is started in.
read_one() { "${@:2}" cat "/proc/sys/net/ipv4/$1" | tr '\t' ' '; }

declare -A settings=(
  [tcp_rmem]='8192 65536 1048576' [tcp_wmem]='8192 65536 1048576' [tcp_congestion_control]=reno
  [tcp_slow_start_after_idle]=0 [tcp_notsent_lowat]=131072 [tcp_keepalive_time]=600
)
[[ $(read_one tcp_congestion_control env) != reno ]] || settings[tcp_congestion_control]=cubic
for name in "${!settings[@]}"; do
  # shellcheck disable=SC2016 # the inner shell expands them
  in_node bash -c 'echo "$2" >"/proc/sys/net/ipv4/$1"' - "${name}" "${settings[${name}]}"
done

declare -A defaults=([tcp_slow_start_after_idle]=1 [tcp_notsent_lowat]=4294967295 [tcp_keepalive_time]=7200)
result=0
for name in tcp_{rmem,wmem,congestion_control,slow_start_after_idle,keepalive_time,notsent_lowat}; do
  machine=$(read_one "${name}" env)
  node_has=$(read_one "${name}" in_node)
  pod=$(read_one "${name}" in_node unshare --net)
  echo "${name}: machine ${machine}, node ${node_has}, pod ${pod}"
  [[ ${node_has} == "${settings[${name}]}" && ${pod} == "${defaults[${name}]:-${machine}}" ]] || result=1
done
exit "${result}"
