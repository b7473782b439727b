#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# libcni: GCNetworkList does nothing and returns nil if the process has no file descriptor left, or no readable cache.
#
# One would guess: nil says that what is stale was given back. The function collects the errors of all plugins and
#   joins them, so one that it cannot even begin with should be among them.
# Seen: an error of reading the cache's directory ends the function with nil (the first lines of GCNetworkList in
#   libcni/api.go). No DEL is sent for attachments that are not valid, and no GC to the plugins, though GC needs
#   nothing of the cache. An entry of the cache that cannot be read is skipped in the same way; its attachment gets no
#   DEL, then or later.
# Who is hurt: a runtime that collects garbage now and then and looks at the error alone. A process at its limit of
#   files, a disk with errors or a cache of another user: addresses and interfaces of ended pods stay, until
#   the range of addresses is full.
# Version: github.com/containernetworking/cni v1.3.1.
# Output, of a network with an attachment that is not valid:
#   no descriptor left: <nil>, calls: none
#   a file in place of the cache's directory: <nil>, calls: none
#   as it should be: <nil>, calls: DEL one, GC
#
# Needs Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
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
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	here, err := os.Getwd()
	must(err)
	cache := filepath.Join(here, "cache")
	c := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(here, "plugins")}, cache, nil)
	network, err := libcni.ConfListFromBytes([]byte(`{"cniVersion":"1.1.0","name":"finding","plugins":[{"type":"recorder"}]}`))
	must(err)
	_, err = c.AddNetworkList(context.Background(), network, &libcni.RuntimeConf{ContainerID: "one", NetNS: "/proc/self/ns/net", IfName: "eth0"})
	must(err)
	must(os.Remove("called"))
	gc := func() error { return c.GCNetworkList(context.Background(), network, &libcni.GCArgs{}) }
	show := func(when string, err error) {
		calls := "none"
		if text, failed := os.ReadFile("called"); failed == nil {
			calls = strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
		}
		fmt.Printf("%s: %v, calls: %s\n", when, err, calls)
	}

	var limit unix.Rlimit
	must(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	must(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: limit.Max}))
	var taken []int
	for fd, err := unix.Dup(0); err == nil; fd, err = unix.Dup(0) {
		taken = append(taken, fd)
	}
	err = gc()
	for _, fd := range taken {
		must(unix.Close(fd))
	}
	must(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	show("no descriptor left", err)

	results := filepath.Join(cache, "results")
	must(os.Rename(results, results+".away"))
	must(os.WriteFile(results, nil, 0o600))
	show("a file in place of the cache's directory", gc())
	must(os.Remove(results))
	must(os.Rename(results+".away", results))
	show("as it should be", gc())
}
GO
cat >go.mod <<'MOD'
module finding

go 1.25

require (
	github.com/containernetworking/cni v1.3.1
	golang.org/x/sys v0.49.0
)
MOD
CGO_ENABLED=0 go build -o finding . 2>/dev/null

mkdir plugins
cat >plugins/recorder <<'SH'
#!/usr/bin/env bash
cat >/dev/null
echo "${CNI_COMMAND}${CNI_CONTAINERID:+ ${CNI_CONTAINERID}}" >>called
if [[ ${CNI_COMMAND} == ADD ]]; then echo '{"cniVersion":"1.1.0"}'; fi
SH
chmod +x plugins/recorder

got=$(./finding)
echo "${got}"
[[ ${got} == "no descriptor left: <nil>, calls: none
a file in place of the cache's directory: <nil>, calls: none
as it should be: <nil>, calls: DEL one, GC" ]] || exit 1
