#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Debian 12's `bpftool net show` answers 0 and an empty list for a device with TCX programs, and so does tc.
#
# One would guess: bpftool lists the programs of a device, as its manual says, or reports a kind that it does not
#   know. The kernel is often newer than bpftool: backports, clouds' kernels, an image made of Debian 12.
# Seen: bpftool 7.1 queries XDP and the filters of qdiscs. A TCX link appears neither in text nor in JSON, and "tc: "
#   stays empty. `tc filter show` and `tc qdisc show` show nothing either: TCX needs no qdisc. Only `bpftool link` has
#   a line, of "type 11", without the device. Libraries that query the hook (cilium/ebpf) see the program.
# Who is hurt: engineers who search for what drops or limits a pod's packets on a node with Cilium 1.16 or newer, and
#   scripts that check whether an agent was removed. They read "no programs" while each packet passes one.
# Version: bpftool 7.1.0+6.1 (Debian 12), iproute2 6.1.0-3, Linux 6.18.44, github.com/cilium/ebpf v0.22.0.
# Output:
#   query of the hook: 1 program
#   bpftool -j net show: [{"xdp":[],"tc":[],"flow_dissector":[]}]
#   tc filter show: ''
#
# Needs root, Go with its module proxy and a mirror of Debian 12's packages. Exits with 1 if that is no longer so,
# with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-net-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}"
candidate=$(apt-cache madison bpftool | awk '$3 ~ /^7\.1\.0\+6\.1\./ {print $3; exit}')
apt-get -o APT::Sandbox::User=root download -q -q "bpftool=${candidate}" iproute2=6.1.0-3
for package in ./*.deb; do dpkg -x "${package}" .; done
bpftool=$(find . -path '*sbin/bpftool' | head -n 1)
cd probe
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return v
}

func main() {
	device := must(net.InterfaceByName("left"))
	program := must(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	}))
	l := must(link.AttachTCX(link.TCXOptions{Program: program, Attach: ebpf.AttachTCXIngress, Interface: device.Index}))
	defer l.Close()
	seen := must(link.QueryPrograms(link.QueryOptions{Target: device.Index, Attach: ebpf.AttachTCXIngress}))
	fmt.Println("query of the hook:", len(seen.Programs), "program")
	show := must(exec.Command(os.Args[1], "-j", "net", "show").Output())
	fmt.Println("bpftool -j net show:", strings.TrimSpace(string(show)))
	filters := must(exec.Command(os.Args[2], "filter", "show", "dev", "left", "ingress").Output())
	fmt.Printf("tc filter show: '%s'\n", filters)
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire github.com/cilium/ebpf v0.22.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

ip netns add "${ns}"
ip -n "${ns}" link add left type veth peer name right
got=$(ip netns exec "${ns}" ./finding "../${bpftool}" ../sbin/tc)
echo "${got}"
[[ ${got} == 'query of the hook: 1 program
bpftool -j net show: [{"xdp":[],"tc":[],"flow_dissector":[]}]
tc filter show: '"''" ]] || exit 1
