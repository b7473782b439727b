#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# tc qdisc change: another rate takes the size table (stab) off, without a word.
#
# One would guess: `tc qdisc change` with another rate changes the rate. What it does not name stays, as the qdisc's
#   handle, its statistics and what waits in it do; tc-stab(8) does not mention `change`.
# Seen: the kernel puts the size table of the request in the place of the former one, also if the request has none
#   (qdisc_change in net/sched/sch_api.c). From then on packets count without the overhead and the cells of ATM. tc
#   answers 0, and `tc qdisc show` is the same with a table and without: it takes -details to see one.
# Who is hurt: scripts that shape an ATM, DSL or tunnelled link a little below its rate, and adapt the rate to what the
#   modem or the radio says. After the first change small packets count a third less than what they take on the
#   link, so the queue is in the modem again, which the shaper was there to avoid.
# Version: iproute2 6.1.0-3 (Debian 12), Linux 6.18.44.
# Output:
#   rate 2mbit with a size table: 20 packets of 142 bytes count as 4240 bytes; details name linklayer atm overhead 40
#   changed to rate 4mbit: 20 packets of 142 bytes count as 2840 bytes; details name nothing
#   without details, but for the rate: the same
#
# Needs root, python3 and a mirror of Debian 12's packages. Exits with 1 if that is no longer so, with 2 if it could
# not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-stab-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
apt-get -o APT::Sandbox::User=root download -q -q iproute2=6.1.0-3
dpkg -x ./iproute2_*.deb .

ip netns add "${ns}"
ip -n "${ns}" link add left type veth peer name right
ip -n "${ns}" link set left up
ip -n "${ns}" link set right up
echo 1 | ip netns exec "${ns}" tee /proc/sys/net/ipv6/conf/all/disable_ipv6 >/dev/null

tc() { ip netns exec "${ns}" "${work}/sbin/tc" "$@"; }
sent() { tc -s -j qdisc show dev left root | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["bytes"])'; }

try() { # NAME
	local before
	before=$(sent)
	ip netns exec "${ns}" python3 -c '
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("left", 0))
for _ in range(20):
    s.send(bytes(12) + b"\x88\xb5" + bytes(128))'
	sleep 0.5
	echo "$1: 20 packets of 142 bytes count as $(($(sent) - before)) bytes; details name $(tc -details qdisc show dev left root | grep -o 'linklayer atm overhead [0-9]*' || echo nothing)"
}

got=$(
	tc qdisc add dev left root handle 1: stab linklayer atm overhead 40 tbf rate 2mbit burst 50kb latency 100ms
	shown=$(tc qdisc show dev left root)
	try 'rate 2mbit with a size table'
	tc qdisc change dev left root handle 1: tbf rate 4mbit burst 50kb latency 100ms
	try 'changed to rate 4mbit'
	[[ $(tc qdisc show dev left root) == "${shown/2Mbit/4Mbit}" ]] && echo 'without details, but for the rate: the same'
)
echo "${got}"
[[ ${got} == 'rate 2mbit with a size table: 20 packets of 142 bytes count as 4240 bytes; details name linklayer atm overhead 40
changed to rate 4mbit: 20 packets of 142 bytes count as 2840 bytes; details name nothing
without details, but for the rate: the same' ]] || exit 1
