#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# iperf3 -u -J: end.sum has the sender's rate beside the receiver's loss and jitter.
#
# One would guess: end.sum, which only UDP has, is the result of the test: what arrived, how much was lost, with
#   which jitter, over which time. So is each end.streams[].udp.
# Seen: bits_per_second, bytes and packets of end.sum are what the client sent; lost_packets, lost_percent,
#   jitter_ms and seconds are the server's. Behind a shaper of 10 Mbit/s a sender of 50 Mbit/s shows 50 Mbit/s
#   and a loss of 80 %. bytes × 8 / seconds is not bits_per_second. Only end.sum_received has what arrived.
#   The manual does not describe the JSON output.
# Who is hurt: whoever measures a limit, a policer or a link by UDP in a script: the limit seems not to hold, or a
#   lossy link seems to be fast. A script that takes end.sum where it exists and end.sum_received otherwise works
#   for TCP and is wrong for UDP.
# Version: iperf3 3.12-1+deb12u2, Linux 6.18.44.
# Output (in Mbit/s, rounded):
#   end.sum: 50, lost 80 %
#   end.streams: 50
#   end.sum_received: 10
#
# Needs root, iproute2, python3 and a mirror of Debian 12's packages. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-iperf-$$
server=
trap '[[ -z ${server} ]] || kill "${server}" 2>/dev/null || true; ip netns del "${ns}" 2>/dev/null || true; ip netns del "${ns}-peer" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
apt-get -o APT::Sandbox::User=root download -q -q iperf3=3.12-1+deb12u2 libiperf0=3.12-1+deb12u2 libsctp1=1.0.19+dfsg-2
for package in ./*.deb; do dpkg -x "${package}" .; done
LD_LIBRARY_PATH=${work}/usr/lib/$(uname -m)-linux-gnu
export LD_LIBRARY_PATH

ip netns add "${ns}"
ip netns add "${ns}-peer"
ip -n "${ns}" link add left type veth peer name right netns "${ns}-peer"
ip -n "${ns}" addr add 192.0.2.1/24 dev left
ip -n "${ns}-peer" addr add 192.0.2.2/24 dev right
ip -n "${ns}" link set left up
ip -n "${ns}-peer" link set right up
tc -n "${ns}" qdisc add dev left root tbf rate 10mbit burst 20000 limit 50000
timeout 60 ip netns exec "${ns}-peer" usr/bin/iperf3 -s -p 7000 >/dev/null &
server=$!
timeout 20 ip netns exec "${ns}" bash -c 'until exec 3<>/dev/tcp/192.0.2.2/7000; do sleep 0.1; done' 2>/dev/null
timeout 60 bash -c "until ip netns exec ${ns} usr/bin/iperf3 -c 192.0.2.2 -p 7000 -u -b 50M -t 3 -J >result; do sleep 0.2; done"
python3 - <<'PY' || exit 1
import json
import sys

end = json.load(open("result"))["end"]


def mbit(of):
    return round(of["bits_per_second"] / 1e6)


summary, received, stream = end["sum"], end["sum_received"], end["streams"][0]["udp"]
print(f"end.sum: {mbit(summary)}, lost {round(summary['lost_percent'])} %")
print(f"end.streams: {mbit(stream)}")
print(f"end.sum_received: {mbit(received)}")
lost = received["lost_percent"]
sys.exit(
    not (
        mbit(summary) > 3 * mbit(received)
        and mbit(stream) == mbit(summary)
        and summary["lost_percent"] == lost > 50
        and summary["seconds"] == received["seconds"]
    )
)
PY
