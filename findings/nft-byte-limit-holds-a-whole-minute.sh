#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# nftables: 60 mbytes/minute with a burst of 64 kbytes lets 60 MiB through at once, and 1 mbytes/day cannot be loaded.
#
# One would guess: burst is the size of the bucket, as in tc, so that 1 mbytes/second and 60 mbytes/minute with the
#   same burst are the same limit. And a limit of any size works, since the manual gives the number 32 bits.
# Seen: the bucket of a byte limit holds what one unit of time brings, plus burst: 60 MiB where the same rate by the
#   second has 1 MiB. Half a sentence of nft(8) says so; the wiki says that burst is what may go beyond the rate. For
#   packets it is otherwise: burst alone. And bytes times nanoseconds must fit 64 bits (nft_limit_init in
#   net/netfilter/nft_limit.c), which nothing documents: 307 MB a minute, 5.1 MB an hour and 213 kB a day are the most,
#   burst included. Beyond them the kernel refuses the file with all its other rules.
# Who is hurt: whoever polices pods or customers by the minute to be gentle: after an idle minute a whole minute's bytes
#   go at line rate. And whoever raises a limit of 290 mbytes/minute a little: the next boot has no firewall.
# Version: nftables 1.0.6-2+deb12u2, Linux 6.18.44.
# Output, of 120 MB sent at once:
#   1 mbytes/second burst 64 kbytes: 1 MB pass
#   60 mbytes/minute burst 64 kbytes: 62 MB pass
#   loads: 293 mbytes/minute yes, 294 mbytes/minute no, 4 mbytes/hour yes, 5 mbytes/hour no, 1 mbytes/day no
#   tables after a file with a second rule of 1 mbytes/day: 0
#
# Needs root, iproute2, python3 and a mirror of Debian 12's packages. Exits with 1 if that is no longer so, with 2 if
# it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-nft-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
chmod 755 .
apt-get -o APT::Sandbox::User=root download -q -q nftables=1.0.6-2+deb12u2 libnftables1=1.0.6-2+deb12u2
for package in ./*.deb; do dpkg -x "${package}" .; done
ip netns add "${ns}"
ip -n "${ns}" link set lo up

run() { ip netns exec "${ns}" "$@"; }
nft() { run env LD_LIBRARY_PATH="${work}/usr/lib/$(uname -m)-linux-gnu" usr/sbin/nft "$@"; }

# file RULE makes a rules file whose first rule is an ordinary one.
file() {
  printf '%s\n' \
    'table ip finding {' 'chain out {' 'type filter hook output priority 0' 'tcp dport 22 accept' "$1" '}' '}' >rules
}

loads() {
  file "limit rate $1 accept"
  if nft -f rules 2>error; then
    nft delete table ip finding
    echo yes
  else
    grep -q 'Value too large' error && echo no
  fi
}

# passes RATE prints how many MB of 120 pass, less one for each second that sending takes.
passes() {
  file "udp dport 9 limit rate $1 counter"
  nft -f rules
  took=$(run python3 -c '
import socket, time
sink, source = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
sink.bind(("127.0.0.1", 9))  # never read; without it the answers would be errors
start = time.monotonic()
for _ in range(2000):
    source.sendto(bytes(60000), ("127.0.0.1", 9))
print(time.monotonic() - start)')
  nft list table ip finding | awk -v took="${took}" '/counter/ { print int($NF / 1000000 - took) }'
  nft delete table ip finding
}

second=$(passes '1 mbytes/second burst 64 kbytes')
minute=$(passes '60 mbytes/minute burst 64 kbytes')
most=
for rate in '293 mbytes/minute' '294 mbytes/minute' '4 mbytes/hour' '5 mbytes/hour' '1 mbytes/day'; do
  most+="${most:+, }${rate} $(loads "${rate}")"
done
file 'udp dport 53 limit rate 1 mbytes/day accept'
nft -f rules 2>/dev/null && exit 1
tables=$(nft list tables | wc -l)
echo "1 mbytes/second burst 64 kbytes: ${second} MB pass"
echo "60 mbytes/minute burst 64 kbytes: ${minute} MB pass"
echo "loads: ${most}"
echo "tables after a file with a second rule of 1 mbytes/day: ${tables}"
want='293 mbytes/minute yes, 294 mbytes/minute no, 4 mbytes/hour yes, 5 mbytes/hour no, 1 mbytes/day no'
((second < 10 && minute >= 62 && minute < 72)) && [[ ${most} == "${want}" && ${tables} == 0 ]] || exit 1
