#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# CNI plugins 1.10.0: bridge, ptp, macvlan and ipvlan answer 0 to GC, and host-local never hears of it.
#
# One would guess: GC gives back addresses that no pod has any more. CNI 1.1 was made for that, host-local has the verb
#   since 1.10.0, and section 2 of the specification says that plugins MUST forward GC to the plugin for addresses.
# Seen: no plugin of the project that calls host-local passes GC on. Their tables of functions have no entry for the verb,
#   and for a function that is missing the library answers 0 (checkVersionAndCall in pkg/skel of cni).
#   STATUS is passed on, but host-local has none: it is 0 while no address is left and each ADD fails, where the
#   specification asks for an error. A direct call of host-local gives addresses back, and so do the
#   DELs that libcni sends first, but only for attachments whose ADD came to its end.
# Who is hurt: whoever upgrades to 1.10.0, turns on the runtime's GC and drops the job that cleaned
#   /var/lib/cni/networks. What an ADD that was killed leaves behind stays, until the range is full and no pod starts;
#   the node is Ready all the while, since STATUS says so.
# Version: github.com/containernetworking/plugins v1.10.0.
# Output, in a range of two addresses, both left behind:
#   bridge: STATUS 0, GC 0, then ADD fails
#   ipvlan: STATUS 0, GC 0, then ADD fails
#   macvlan: STATUS 0, GC 0, then ADD fails
#   ptp: STATUS 0, GC 0, then ADD fails
#   host-local: STATUS 0, GC 0, then ADD works
#
# Needs Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
cd "${work}"
export GOFLAGS=-modcacherw GOMODCACHE=${work}/mod GOBIN=${work}/bin CGO_ENABLED=0
for plugin in main/bridge main/ipvlan main/macvlan main/ptp ipam/host-local; do
  go install "github.com/containernetworking/plugins/plugins/${plugin}@v1.10.0" 2>/dev/null
done

# No container is valid, so GC may take all. The network namespace is never opened: only host-local gets an ADD.
cni() {
  printf '{"cniVersion": "1.1.0", "name": "pods", "type": "%s", "cni.dev/valid-attachments": [], "ipam": {
    "type": "host-local", "dataDir": "%s/data",
    "ranges": [[{"subnet": "192.0.2.0/29", "rangeStart": "192.0.2.2", "rangeEnd": "192.0.2.3"}]]}}' "$2" "${work}" |
    CNI_COMMAND=$1 CNI_CONTAINERID=${3:-} CNI_NETNS=/proc/self/ns/net CNI_NETNS_OVERRIDE=true CNI_IFNAME=eth0 \
      CNI_PATH=${work}/bin "bin/$2" >answer
}

add() { if cni ADD host-local "$1"; then echo works; else grep -q 'no IP addresses available' answer && echo fails; fi; }

[[ $(add first) == works && $(add second) == works ]] || exit 2
got=
for plugin in bridge ipvlan macvlan ptp host-local; do
  cni STATUS "${plugin}" && status=0 || status=$?
  cni GC "${plugin}" && gc=0 || gc=$?
  got+="${plugin}: STATUS ${status}, GC ${gc}, then ADD $(add third)"$'\n'
done
printf '%s' "${got}"
[[ ${got} == 'bridge: STATUS 0, GC 0, then ADD fails
ipvlan: STATUS 0, GC 0, then ADD fails
macvlan: STATUS 0, GC 0, then ADD fails
ptp: STATUS 0, GC 0, then ADD fails
host-local: STATUS 0, GC 0, then ADD works
' ]] || exit 1
