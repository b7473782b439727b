#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# tc filter replace: without a handle it adds a filter at each run, and with u32 the first one stays in force.
#
# One would guess: `replace` makes a script that may run again, as it does for `tc qdisc replace` and `ip route
#   replace`. tc(8) says that it is an atomic removal and addition of "an existing node id", and a filter with a
#   preference seems to have one.
# Seen: the node id of a filter is its handle. Without one the kernel chooses the next that is free (u32_change in
#   net/sched/cls_u32.c, cls_bpf_change in cls_bpf.c), so nothing is ever replaced, and tc answers 0. Of two u32
#   filters with the same preference the older one is asked first, so what the second run says has no effect. BPF
#   programs are asked the other way round: the new one counts, and the former ones come back when it is deleted.
#   Without a preference each run gets one of its own. With a handle it does replace.
# Who is hurt: scripts and boot units that set a customer's or a pod's class, or a policer, by `replace` and are run
#   again with another value: the former value stays, and each packet passes more filters after each run.
# Version: iproute2 6.1.0-3 (Debian 12), Linux 6.18.44.
# Output:
#   u32 pref 1, flowid 1:10: filters 1, packets in 1:10
#   u32 pref 1, flowid 1:20: filters 2, packets in 1:10
#   u32 pref 1, flowid 1:20, by handle 800::800: filters 2, packets in 1:20
#   bpf pref 1, flowid 1:10: filters 1, packets in 1:10
#   bpf pref 1, flowid 1:20: filters 2, packets in 1:20
#   bpf pref 1, handle 2 deleted: filters 1, packets in 1:10
#   bpf, flowid 1:10: filters 1, packets in 1:10
#   bpf, flowid 1:20: filters 2, packets in 1:20
#
# Needs root, python3 and a mirror of Debian 12's packages. Exits with 1 if that is no longer so, with 2 if it could
# not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-replace-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
chmod 755 .
apt-get -o APT::Sandbox::User=root download -q -q iproute2=6.1.0-3
dpkg -x ./iproute2_*.deb .

ip netns add "${ns}"
ip -n "${ns}" link add left type veth peer name right
ip -n "${ns}" link set left up
ip -n "${ns}" link set right up
echo 1 | ip netns exec "${ns}" tee /proc/sys/net/ipv6/conf/all/disable_ipv6 >/dev/null

tc() { ip netns exec "${ns}" "${work}/sbin/tc" "$@"; }

tc qdisc add dev left root handle 1: htb default 30
for class in 10 20 30; do tc class add dev left parent 1: classid "1:${class}" htb rate 10mbit; done

# Lines of a class and the packets that it has sent.
sent() { tc -s class show dev left | awk '/^class/ { class = $3 } /Sent/ { print class, $4 }' | sort; }

# try NAME COMMAND ARGUMENTS... changes filters, and says how many there are and in which class five packets go.
try() {
  tc filter "$2" dev left parent 1: protocol ip "${@:3}" || [[ $2 == del ]]
  sent >before
  ip netns exec "${ns}" python3 -c '
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("left", 0))
for _ in range(5):
    s.send(bytes(12) + b"\x08\x00\x45" + bytes(127))'
  for _ in {1..100}; do
    sent >after
    new=$(join before after | awk '$3 > $2 { print $1, $3 - $2 }')
    [[ ${new} != *' 5' ]] || break
    sleep 0.1
  done
  echo "$1: filters $(tc filter show dev left parent 1: | grep -c flowid), packets in ${new% 5}"
}

got=$(
  for class in 1:10 1:20; do try "u32 pref 1, flowid ${class}" replace pref 1 u32 match u32 0 0 flowid "${class}"; done
  try 'u32 pref 1, flowid 1:20, by handle 800::800' replace pref 1 handle 800::800 u32 match u32 0 0 flowid 1:20
  tc filter del dev left parent 1:
  for class in 1:10 1:20; do
    try "bpf pref 1, flowid ${class}" replace pref 1 bpf bytecode '1,6 0 0 4294967295,' flowid "${class}"
  done
  try 'bpf pref 1, handle 2 deleted' del pref 1 handle 2 bpf
  tc filter del dev left parent 1:
  for class in 1:10 1:20; do try "bpf, flowid ${class}" replace bpf bytecode '1,6 0 0 4294967295,' flowid "${class}"; done
)
echo "${got}"
[[ ${got} == 'u32 pref 1, flowid 1:10: filters 1, packets in 1:10
u32 pref 1, flowid 1:20: filters 2, packets in 1:10
u32 pref 1, flowid 1:20, by handle 800::800: filters 2, packets in 1:20
bpf pref 1, flowid 1:10: filters 1, packets in 1:10
bpf pref 1, flowid 1:20: filters 2, packets in 1:20
bpf pref 1, handle 2 deleted: filters 1, packets in 1:10
bpf, flowid 1:10: filters 1, packets in 1:10
bpf, flowid 1:20: filters 2, packets in 1:20' ]] || exit 1
