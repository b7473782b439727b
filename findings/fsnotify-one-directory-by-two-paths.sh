#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# fsnotify: if one directory is watched by two paths, events have only the first path.
#
# One would guess: each Add makes its own watch, whose events carry its path. Or the second Add fails, since inotify
#   has one watch for an inode. The documentation says that "a path can only be watched once"; these are two paths.
# Seen: Add of a link to a directory that is watched already returns nil. All events keep the first path, WatchList
#   lacks the second, and Remove of the second says that it is not watched. If the link is added first, events have
#   the path of the link. A program that filters by Event.Name, as the documentation advises, sees no event under the
#   second path.
# Who is hurt: agents that watch several directories, if a distribution makes one a link to another: /etc/cni/net.d
#   and that of k3s or CRI-O, /var/run and /run. The order of Add decides which path gets no events.
# Version: github.com/fsnotify/fsnotify v1.9.0, and the same with v1.10.1; Linux 6.18.44.
# Output:
#   Add of both: <nil> <nil>, WatchList: first
#   a file through the second path: CREATE first/file
#   Remove of the second: fsnotify: can't remove non-existent watch: second
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
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	check(os.Mkdir("first", 0o755))
	check(os.Symlink("first", "second"))
	w, err := fsnotify.NewWatcher()
	check(err)
	first, second := w.Add("first"), w.Add("second")
	fmt.Println("Add of both:", first, fmt.Sprint(second)+", WatchList:", strings.Join(w.WatchList(), " "))
	check(os.Mkdir("second/file", 0o755))
	select {
	case e := <-w.Events:
		fmt.Println("a file through the second path:", e.Op, e.Name)
	case <-time.After(10 * time.Second):
		fmt.Println("a file through the second path: no event")
	}
	fmt.Println("Remove of the second:", w.Remove("second"))
}
GO
want="Add of both: <nil> <nil>, WatchList: first
a file through the second path: CREATE first/file
Remove of the second: fsnotify: can't remove non-existent watch: second"
for version in v1.9.0 v1.10.1; do
	printf 'module finding\n\ngo 1.25\n\nrequire github.com/fsnotify/fsnotify %s\n' "${version}" >go.mod
	CGO_ENABLED=0 go build -o finding . 2>/dev/null
	rm -rf first second
	got=$(./finding)
	echo "${got}"
	[[ ${got} == "${want}" ]] || exit 1
done
