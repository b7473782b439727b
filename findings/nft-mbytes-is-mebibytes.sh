#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# nftables: "mbytes" in a rate limit or a quota means 1,048,576 bytes, and "kbytes" 1,024.
#
# One would guess: a rate counts in powers of ten, as in tc ("1mbps" is 1,000,000 bytes/s), in
#   ethtool, in iperf3 and in a pod's annotation; a binary unit would be called mibytes.
# Seen: "limit rate 1 mbytes/second" reaches the kernel as 1048576. The manual names the units and
#   gives no size. Neither does the JSON output show it: it repeats "mbytes".
# Who is hurt: whoever polices by nft what the other end shapes by tc, or replaces one by the other:
#   the limit lies 4.9 % above the contract, and a shaper set to the same number hides it.
#   Whoever reads the JSON and multiplies by 10^6 is wrong by as much.
# Version: nftables 1.0.6-2+deb12u2 (the byte units of src/datatype.c), iproute2 6.1.0, Linux 6.18.44.
# Output:
#   nft limit rate 1 and 8 mbytes/second: 1048576 8388608 bytes/s
#   nft quota 1 mbytes and 1 kbytes: 1048576 1024 bytes
#   nft in JSON: "rate": 1, "rate_unit": "mbytes"
#   tc tbf rate 1mbps: 1000000 bytes/s
#
# Needs root and a mirror of Debian 12's packages. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-nft-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
chmod 755 .
apt-get -o APT::Sandbox::User=root download -q -q nftables=1.0.6-2+deb12u2 libnftables1=1.0.6-2+deb12u2 iproute2=6.1.0-3
for package in ./*.deb; do dpkg -x "${package}" .; done
ip netns add "${ns}"

run() { ip netns exec "${ns}" env LD_LIBRARY_PATH="${work}/usr/lib/$(uname -m)-linux-gnu" "$@"; }

rule() { run usr/sbin/nft --debug=netlink "add rule inet finding rates $*" | grep -oE '(rate|bytes) [0-9]+' | grep -oE '[0-9]+'; }

run usr/sbin/nft 'add table inet finding; add chain inet finding rates'
limit="$(rule limit rate 1 mbytes/second accept) $(rule limit rate 8 mbytes/second accept)"
quota="$(rule quota 1 mbytes accept) $(rule quota 1 kbytes accept)"
json=$(run usr/sbin/nft -j list ruleset | grep -oE '"rate": 1,|"rate_unit": "mbytes"' | sort -u | tr '\n' ' ')
ip -n "${ns}" link add left type veth peer name right
run sbin/tc qdisc add dev left root tbf rate 1mbps burst 10000 limit 10000
shaper=$(run sbin/tc -j qdisc show dev left | grep -oE '"rate":[0-9]+')
echo "nft limit rate 1 and 8 mbytes/second: ${limit} bytes/s"
echo "nft quota 1 mbytes and 1 kbytes: ${quota} bytes"
echo "nft in JSON: ${json}"
echo "tc tbf rate 1mbps: ${shaper#*:} bytes/s"
[[ ${limit} == '1048576 8388608' && ${quota} == '1048576 1024' && ${json} == *mbytes* && ${shaper} == '"rate":1000000' ]] || exit 1
