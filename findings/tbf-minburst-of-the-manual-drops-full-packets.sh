#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# tc tbf: the peak bucket that tc-tbf(8) advises, and the one that tc shows, let no full-size packet pass.
#
# One would guess: `minburst 1500` on a device with MTU 1500 passes each packet, since the manual says that minburst
#   "should be set to the MTU of the interface". And a TBF made again with the numbers of `tc qdisc show` is the same.
# Seen: TBF compares the size with the Ethernet header, 1514, and drops what is larger than either bucket. tc answers
#   0, and small packets pass. minburst 1514 passes all, but tc shows 1512: the kernel reports the bucket in ticks of
#   64 ns (tbf_dump in net/sched/sch_tbf.c), and tc turns them back into bytes. At a peak of 1 Gbit/s it shows 1500.
#   In JSON there is no peak rate at all: q_tbf.c of iproute2 prints it only as text.
# Who is hurt: whoever follows the manual, and whoever saves a shaper and restores it. Pings, DNS and handshakes
#   pass, each large transfer stalls, and it looks like an MTU fault of the path. A line of the kernel's log tells.
# Version: iproute2 6.1.0-3 (Debian 12), Linux 6.18.44.
# Output:
#   minburst 1500: 20 of 20 packets of 142 bytes arrive, 0 of 20 of 1514 bytes
#   minburst 1514: 20 of 20 packets of 142 bytes arrive, 20 of 20 of 1514 bytes
#   minburst 1512, as shown: 20 of 20 packets of 142 bytes arrive, 0 of 20 of 1514 bytes
#   JSON: burst, lat, minburst, rate
#
# Needs root, python3 and a mirror of Debian 12's packages. Exits with 1 if that is no longer so, with 2 if it could
# not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-peak-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; ip netns del "${ns}-peer" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
apt-get -o APT::Sandbox::User=root download -q -q iproute2=6.1.0-3
dpkg -x ./iproute2_*.deb .
manual=$(zcat usr/share/man/man8/tc-tbf.8.gz | tr '\n' ' ')
[[ ${manual} == *'should be set to the MTU of the interface'* ]] || exit 1
cat >count.py <<'PY'
"""Prints how many of 20 datagrams with so many bytes of payload reach the peer's namespace."""
import ctypes, os, socket, sys

own = os.open("/proc/self/ns/net", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)


def enter(fd):
    if libc.setns(fd, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


enter(os.open("/run/netns/" + sys.argv[1], os.O_RDONLY))
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("192.0.2.2", 9000))
receiver.settimeout(1)
enter(own)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20):
    sender.sendto(bytes(int(sys.argv[2])), ("192.0.2.2", 9000))
arrived = 0
try:
    while arrived < 20:
        receiver.recv(2000)
        arrived += 1
except TimeoutError:
    pass
print(arrived)
PY

ip netns add "${ns}"
ip netns add "${ns}-peer"
ip -n "${ns}" link add left type veth peer name right netns "${ns}-peer"
ip -n "${ns}" addr add 192.0.2.1/24 dev left
ip -n "${ns}-peer" addr add 192.0.2.2/24 dev right
ip -n "${ns}" link set left up
ip -n "${ns}-peer" link set right up
mac=$(ip -n "${ns}-peer" -j link show right | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["address"])')
ip -n "${ns}" neigh replace 192.0.2.2 lladdr "${mac}" dev left

tc() { ip netns exec "${ns}" "${work}/sbin/tc" "$@"; }

try() { # NAME MINBURST
	tc qdisc replace dev left root tbf rate 10mbit burst 64kb latency 100ms peakrate 37mbit minburst "$2"
	small=$(ip netns exec "${ns}" python3 count.py "${ns}-peer" 100)
	full=$(ip netns exec "${ns}" python3 count.py "${ns}-peer" 1472)
	echo "$1: ${small} of 20 packets of 142 bytes arrive, ${full} of 20 of 1514 bytes"
}

got=$(
	try 'minburst 1500' 1500
	try 'minburst 1514' 1514
	shown=$(tc qdisc show dev left | sed -n 's/.* minburst \([0-9]*\)b .*/\1/p')
	try "minburst ${shown}, as shown" "${shown}"
	tc -j qdisc show dev left |
		python3 -c 'import json, sys; print("JSON:", ", ".join(sorted(json.load(sys.stdin)[0]["options"])))'
)
echo "${got}"
[[ ${got} == 'minburst 1500: 20 of 20 packets of 142 bytes arrive, 0 of 20 of 1514 bytes
minburst 1514: 20 of 20 packets of 142 bytes arrive, 20 of 20 of 1514 bytes
minburst 1512, as shown: 20 of 20 packets of 142 bytes arrive, 0 of 20 of 1514 bytes
JSON: burst, lat, minburst, rate' ]] || exit 1
