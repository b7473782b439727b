#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# vishvananda/netlink: QdiscDel of a Tbf deletes the HTB in its place, and of an Ingress the clsact.
#
# One would guess: QdiscDel(&Tbf{...}) deletes a TBF or fails. The comment says "equivalent to: tc qdisc del", and
#   `tc qdisc del dev host0 ingress` answers "Invalid qdisc name" where there is a clsact.
# Seen: for a delete the library sends the place alone, without the kind (qdiscModify in qdisc_linux.go), so the
#   kernel, which refuses another kind, has nothing to compare. An Ingress and a clsact have the same place and
#   handle, and a shaper at the root mostly has handle 1:. Without a handle (0) whatever is at the root goes; another
#   handle than the qdisc's is refused. With the qdisc go all its classes and filters, in both directions.
# Who is hurt: agents and CNI plugins that take "their" qdisc off in a cleanup which may run twice or late. By then the
#   place is another's: the clsact may hold a CNI's programs for both directions, and the HTB a pod's limit. The answer
#   is nil.
# Version: github.com/vishvananda/netlink v1.3.1, netns v0.0.5, Linux 6.18.44.
# Output:
#   there are: htb clsact
#   tc qdisc del ingress: Invalid qdisc name: must match existing qdisc; left: htb clsact
#   QdiscDel of an Ingress: <nil>; left: htb
#   QdiscDel of a Tbf 2: invalid argument; left: htb
#   QdiscDel of a Tbf 1: <nil>; left: nothing
#
# Needs root, iproute2, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func kinds(l netlink.Link) string {
	var all []string
	for _, q := range must(netlink.QdiscList(l)) {
		all = append(all, q.Type())
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, " ")
}

// The namespace belongs to this thread, and ends with it; so tc, which this thread starts, is in it.
func main() {
	runtime.LockOSThread()
	must(netns.New())
	check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "host0"}, PeerName: "eth0"}))
	l := must(netlink.LinkByName("host0"))
	at := func(parent uint32, major uint16) netlink.QdiscAttrs {
		return netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index, Parent: parent, Handle: netlink.MakeHandle(major, 0),
		}
	}
	check(netlink.QdiscAdd(netlink.NewHtb(at(netlink.HANDLE_ROOT, 1))))
	check(netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: at(netlink.HANDLE_CLSACT, 0xffff)}))
	fmt.Println("there are:", kinds(l))

	out, _ := exec.Command("tc", "qdisc", "del", "dev", "host0", "ingress").CombinedOutput()
	said := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(out)), "Error: "), ".")
	fmt.Printf("tc qdisc del ingress: %s; left: %s\n", said, kinds(l))
	for _, del := range []struct {
		name  string
		qdisc netlink.Qdisc
	}{
		{"an Ingress", &netlink.Ingress{QdiscAttrs: at(netlink.HANDLE_INGRESS, 0xffff)}},
		{"a Tbf 2", &netlink.Tbf{QdiscAttrs: at(netlink.HANDLE_ROOT, 2)}},
		{"a Tbf 1", &netlink.Tbf{QdiscAttrs: at(netlink.HANDLE_ROOT, 1)}},
	} {
		err := netlink.QdiscDel(del.qdisc)
		fmt.Printf("QdiscDel of %s: %v; left: %s\n", del.name, err, kinds(l))
	}
}
GO
cat >go.mod <<'MOD'
module finding

go 1.25

require (
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
)
MOD
CGO_ENABLED=0 go build -o finding . 2>/dev/null

got=$(./finding)
echo "${got}"
[[ ${got} == 'there are: htb clsact
tc qdisc del ingress: Invalid qdisc name: must match existing qdisc; left: htb clsact
QdiscDel of an Ingress: <nil>; left: htb
QdiscDel of a Tbf 2: invalid argument; left: htb
QdiscDel of a Tbf 1: <nil>; left: nothing' ]] || exit 1
