#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Debian 12's `tc -j class show` answers 0 and prints text.
#
# One would guess: -j, "display results in JSON format" by tc(8), means JSON or an error for each object, as
#   it does for qdisc, filter and action, and for each object of ip.
# Seen: tc_class.c of iproute2 6.1 never opens a JSON document. A class of HTB comes as the same text as
#   without -j. A device without classes gives an empty output instead of [].
# Who is hurt: exporters and scripts that read classes on Debian 12, or in an image made of it, and were
#   tested with `tc -j qdisc` alone: `jq` fails, or, where an empty output is taken for an empty list, the
#   shaper of a device seems to have no classes.
# Version: iproute2 6.1.0-3 (Debian 12), Linux 6.18.44.
# Output:
#   tc -j qdisc show: 0, JSON with 1 qdisc
#   tc -j class show: 0, class htb 1:1 root prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b
#   tc -j class show of a device without classes: 0, ''
#
# Needs root, python3 and a mirror of Debian 12's packages. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-class-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
apt-get -o APT::Sandbox::User=root download -q -q iproute2=6.1.0-3
dpkg -x ./iproute2_*.deb .
ip netns add "${ns}"
ip -n "${ns}" link add left type veth peer name right
ip -n "${ns}" link set left up

tc() { ip netns exec "${ns}" "${work}/sbin/tc" "$@"; }

tc qdisc add dev left root handle 1: htb default 1
tc class add dev left parent 1: classid 1:1 htb rate 1mbit
qdiscs=$(tc -j qdisc show dev left | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))')
class=$(tc -j class show dev left)
none=$(tc -j class show dev right)
echo "tc -j qdisc show: 0, JSON with ${qdiscs} qdisc"
echo "tc -j class show: 0, ${class}"
echo "tc -j class show of a device without classes: 0, '${none}'"
[[ ${qdiscs} == 1 && ${class} == 'class htb 1:1 root prio 0 rate 1Mbit'* && -z ${none} ]] || exit 1
