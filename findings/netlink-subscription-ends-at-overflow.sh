#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# vishvananda/netlink: LinkSubscribe ends for good, without a word, at the first burst of events.
#
# One would guess: a reader that is late loses events and gets later ones, as with `ip monitor`; or an error.
# Seen: when the socket's buffer overflows (ENOBUFS), the goroutine that receives closes the channel and returns
#   (linkSubscribeAt in link_linux.go). What the socket still holds is lost as well. LinkSubscribe has no
#   way to tell why, since the error goes to a callback that only LinkSubscribeWithOptions can set. A reader
#   that does not check for a closed channel gets empty updates as fast as it can read. The default
#   buffer holds some 100 events. AddrSubscribe, RouteSubscribe and NeighSubscribe are built alike.
# Who is hurt: node agents that react to devices of pods. After a reboot or a drain hundreds come at a time;
#   the agent sees none from then on until it is restarted, and looks healthy.
# Version: github.com/vishvananda/netlink v1.3.1, github.com/vishvananda/netns v0.0.5, Linux 6.18.44.
# Output (the first number varies by a few):
#   default buffer: 1 updates after 800 changes, channel closed, a later change is not seen
#   buffer of 16 MiB: 800 updates after 800 changes, channel open, a later change is seen
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
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func try(what string, options netlink.LinkSubscribeOptions, device netlink.Link) {
	updates := make(chan netlink.LinkUpdate)
	done := make(chan struct{})
	defer close(done)
	must(netlink.LinkSubscribeWithOptions(updates, done, options))
	for range 400 {
		must(netlink.LinkSetUp(device))
		must(netlink.LinkSetDown(device))
	}
	seen, open := 0, true
	for quiet := false; open && !quiet; {
		select {
		case _, open = <-updates:
			if open {
				seen++
			}
		case <-time.After(3 * time.Second):
			quiet = true
		}
	}
	must(netlink.LinkSetUp(device))
	defer func() { must(netlink.LinkSetDown(device)) }()
	later := "not seen"
	select {
	case _, open = <-updates:
		if open {
			later = "seen"
		}
	case <-time.After(20 * time.Second):
	}
	state := map[bool]string{false: "closed", true: "open"}[open]
	fmt.Printf("%s: %d updates after 800 changes, channel %s, a later change is %s\n", what, seen, state, later)
}

// The namespace belongs to this thread, and ends with it.
func main() {
	runtime.LockOSThread()
	_, err := netns.New()
	must(err)
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left"}, PeerName: "right"}))
	device, err := netlink.LinkByName("left")
	must(err)
	try("default buffer", netlink.LinkSubscribeOptions{}, device)
	try("buffer of 16 MiB", netlink.LinkSubscribeOptions{ReceiveBufferSize: 16 << 20, ReceiveBufferForceSize: true}, device)
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
few='default buffer: [0-9]{1,2} updates after 800 changes, channel closed, a later change is not seen'
all='buffer of 16 MiB: [0-9]{3,} updates after 800 changes, channel open, a later change is seen'
[[ ${got} =~ ^${few}$'\n'${all}$ ]] || exit 1
