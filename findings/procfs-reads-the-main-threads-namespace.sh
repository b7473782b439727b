#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# prometheus/procfs: in a thread that entered a pod's network namespace, NetDev shows the host's devices.
#
# One would guess: after runtime.LockOSThread and setns, what the goroutine reads below /proc/net is that
#   namespace's, as what it asks by netlink is, and as /proc/sys/net is.
# Seen: /proc/net is a link to self/net, and self is the process: its main thread, which is still in the
#   namespace of the host. FS.NetDev opens below it (newNetDev in net_dev.go), as the other net functions of FS
#   do. The numbers are plausible, and the same for each pod. A file system at /proc/thread-self shows the
#   namespace. Where the goroutine happens to have the main thread, all is well.
# Who is hurt: agents in Go that collect counters of pods with netns.Set or ns.Do of the CNI plugins: they mix netlink's
#   devices of the pod with the host's counters, and a test whose goroutine has the main thread does not show it.
# Version: github.com/prometheus/procfs v0.22.0, github.com/vishvananda/netlink v1.3.1, netns v0.0.5, Linux 6.18.44.
# Output:
#   another thread: netlink has [finding0 lo peer], /proc/sys/net has finding0: true, procfs has it: false, at thread-self: true
#   main thread: netlink has [finding0 lo peer], /proc/sys/net has finding0: true, procfs has it: true, at thread-self: true
#
# Needs root, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
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
	"runtime"
	"slices"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func shows(mount string) bool {
	fs, err := procfs.NewFS(mount)
	must(err)
	devices, err := fs.NetDev()
	must(err)
	_, ok := devices["finding0"]
	return ok
}

// look enters a new namespace, which belongs to the calling thread.
func look(what string) {
	_, err := netns.New()
	must(err)
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "finding0"}, PeerName: "peer"}))
	links, err := netlink.LinkList()
	must(err)
	names := []string{}
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	_, err = os.Stat("/proc/sys/net/ipv4/conf/finding0")
	fmt.Printf("%s: netlink has %v, /proc/sys/net has finding0: %t, procfs has it: %t, at thread-self: %t\n",
		what, names, err == nil, shows("/proc"), shows("/proc/thread-self"))
}

func init() { runtime.LockOSThread() } // main runs on the main thread

func main() {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		look("another thread")
		close(done)
	}()
	<-done
	look("main thread")
}
GO
cat >go.mod <<'MOD'
module finding

go 1.25

require (
	github.com/prometheus/procfs v0.22.0
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
)
MOD
CGO_ENABLED=0 go build -o finding . 2>/dev/null
got=$(./finding)
echo "${got}"
[[ ${got} == 'another thread: netlink has [finding0 lo peer], /proc/sys/net has finding0: true, procfs has it: false, at thread-self: true
main thread: netlink has [finding0 lo peer], /proc/sys/net has finding0: true, procfs has it: true, at thread-self: true' ]] || exit 1
