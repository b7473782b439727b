#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# `ip netns exec NS bpftool map create` reports success, and the pin is gone when the command ends.
#
# One would guess: `ip netns exec` changes the network and, as its manual says, puts the files of
#   /etc/netns/NS over those in /etc. The bpffs is the same inside and outside.
# Seen: it also unmounts /sys in a mount namespace of its own and mounts a new sysfs, which the manual does
#   not say (netns_switch in lib/namespace.c of iproute2). /sys/fs/bpf is then an empty directory: a pin
#   that was made outside is not found. bpftool mounts a bpffs there, pins and succeeds, and the mount ends
#   with the command; so does each map, program or link that only this pin held.
#   nsenter --net=/run/netns/NS changes nothing but the network.
# Who is hurt: whoever loads or inspects a pod's programs from its namespace. A script reports that a
#   shaper or a policy is pinned, and it is no longer there; a loader that looks for its pin finds none
#   and makes a second one.
# Version: iproute2 6.1.0-3, bpftool 7.1.0+6.1.192-3 (Debian 12), Linux 6.18.44.
# Output:
#   ip netns exec: created and found inside, afterwards gone
#   nsenter --net: created and found inside, afterwards there
#   pin made outside: by nsenter and by ip netns exec: found, not found
#
# Needs root, a bpffs at /sys/fs/bpf and a mirror of Debian 12's packages. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-pin-$$
pin=/sys/fs/bpf/finding-$$
trap 'rm -f "${pin}"; ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
apt-get -o APT::Sandbox::User=root download -q -q iproute2=6.1.0-3 bpftool=7.1.0+6.1.192-3
for package in ./*.deb; do dpkg -x "${package}" .; done
bpftool=${work}/usr/sbin/bpftool

cat >create <<SH
${bpftool} map create ${pin} type array key 4 value 4 entries 1 name finding
${bpftool} map show pinned ${pin} >/dev/null && echo created and found inside
SH

# Runs create in the namespace, and says afterwards whether the pin is there outside.
inside() {
  "$@" bash -e create
  if [[ -e ${pin} ]]; then echo there; else echo gone; fi
}

found() { if "$@" "${bpftool}" map show pinned "${pin}" >/dev/null 2>&1; then echo found; else echo not found; fi; }

sbin/ip netns add "${ns}"
by_ip=$(inside sbin/ip netns exec "${ns}" | paste -s -d ,)
by_nsenter=$(inside nsenter --net="/run/netns/${ns}" | paste -s -d ,)
outside="$(found nsenter --net="/run/netns/${ns}"), $(found sbin/ip netns exec "${ns}")"
echo "ip netns exec: ${by_ip/,/, afterwards }"
echo "nsenter --net: ${by_nsenter/,/, afterwards }"
echo "pin made outside: by nsenter and by ip netns exec: ${outside}"
[[ ${by_ip} == 'created and found inside,gone' && ${by_nsenter} == 'created and found inside,there' && ${outside} == 'found, not found' ]] || exit 1
