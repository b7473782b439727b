#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# go-cni (containerd, nerdctl): where iptables is missing, each pod that cannot start leaves its address taken, and
# Remove returns nil.
#
# One would guess: Remove returns nil if each plugin had its DEL and succeeded. After an error the runtime keeps the
#   sandbox and tries again.
# Seen: Remove takes each error with "not found" in its text for a network that is gone already (cni.go). The text is the
#   plugin's, and of a program that is missing Go says "executable file not found in $PATH". DELs begin at the end of the
#   chain and stop at the first error: so the plugin that made the interface, and its IPAM, get none, now or later.
# Who is hurt: nodes with portmap or firewall behind the main plugin that lose iptables, by an upgrade of the
#   distribution or of the unit's PATH. ADD says so loudly, and it is mended soon; but meanwhile each retry of each pod
#   takes one more address. After some 250 retries a /24 is full, and no pod starts any more, with iptables or without.
# Version: github.com/containerd/go-cni v1.1.14, github.com/containernetworking/plugins v1.10.0.
# Output:
#   ptp and firewall without iptables, tries 3: Setup fails, Remove <nil>, addresses taken 3
#   ptp and a plugin that is not there, tries 1: Setup fails, Remove fails, addresses taken 1
#   ptp alone, tries 1: Setup <nil>, Remove <nil>, addresses taken 0
#
# Needs root, iproute2, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
pod=finding-pod-$$
trap 'ip netns del "${pod}" 2>/dev/null || true; rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS=-modcacherw GOMODCACHE=${work}/mod GOBIN=${work}/bin CGO_ENABLED=0
for plugin in main/ptp ipam/host-local meta/firewall; do
  go install "github.com/containernetworking/plugins/plugins/${plugin}@v1.10.0" 2>/dev/null
done
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/go-cni"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func said(err error) string {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return "fails"
	}
	return "<nil>"
}

// Arguments: the directory of the plugins, that of the addresses, the sandbox's name and network namespace, and what
// comes behind ptp.
func main() {
	bin, data, id, netns, more := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	must(os.Setenv("PATH", "/nowhere"))
	l, err := cni.New(cni.WithMinNetworkCount(1), cni.WithPluginDir([]string{bin}))
	must(err)
	must(l.Load(cni.WithConfListBytes(fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"finding","plugins":[
		{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"subnet":"192.0.2.0/24"}}%s]}`, data, more))))
	_, err = l.Setup(context.Background(), id, netns)
	setup := said(err)
	fmt.Printf("Setup %s, Remove %s", setup, said(l.Remove(context.Background(), id, netns)))
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire github.com/containerd/go-cni v1.1.14\n' >go.mod
GOFLAGS="-mod=mod -modcacherw" go build -o finding . 2>/dev/null

# tries COUNT NAME MORE makes so many pods, each with a network namespace of its own. The node is one, too, and has no
# files of others in /var/lib.
tries() {
  for try in $(seq "$1"); do
    ip netns add "${pod}"
    # shellcheck disable=SC2016 # the inner shell expands them
    said=$(unshare --net --mount bash -c 'mount -t tmpfs tmpfs /var/lib && "$@"' - ./finding "${work}/bin" "${work}/$2" \
      "sandbox-${try}" "/run/netns/${pod}" "$3" 2>>errors)
    ip netns del "${pod}"
  done
  echo "$2, tries $1: ${said}, addresses taken $(find "${work}/$2" -name '192.*' | wc -l)"
}

got=$(
  tries 3 'ptp and firewall without iptables' ',{"type":"firewall","backend":"iptables"}'
  tries 1 'ptp and a plugin that is not there' ',{"type":"other"}'
  tries 1 'ptp alone' ''
)
echo "${got}"
[[ ${got} == 'ptp and firewall without iptables, tries 3: Setup fails, Remove <nil>, addresses taken 3
ptp and a plugin that is not there, tries 1: Setup fails, Remove fails, addresses taken 1
ptp alone, tries 1: Setup <nil>, Remove <nil>, addresses taken 0' ]] || exit 1
