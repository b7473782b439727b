#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# libcni: GCNetworkList with nil as its arguments sends a DEL for each live attachment, on networks of 1.0.0 too.
#
# One would guess: GC is a verb of CNI 1.1.0, so a network of 1.0.0 is left alone. And the arguments are a pointer
#   with the valid attachments: nil says that the caller has no list, so there is nothing to compare with.
# Seen: the call first sends a DEL for each attachment in the cache of the network that is not in the list, for each
#   version; nil is an empty list. So is a zero GCArgs, after a failed listing of pods for example. The
#   documentation of the function says "issue deletes as necessary". With 1.1.0 the plugins get
#   a GC without the key of valid attachments after that.
# Who is hurt: a runtime or an agent that calls GC at its start, before it knows its pods, or that
#   only wants to pass the verb on: running pods lose their interfaces and addresses, and no error is returned.
# Version: github.com/containernetworking/cni v1.3.1 (GCNetworkList in libcni/api.go).
# Output:
#   1.0.0 with nil: ADD one, ADD two, DEL one, DEL two
#   1.0.0 with one: ADD one, ADD two, DEL two
#   1.1.0 with nil: ADD one, ADD two, DEL one, DEL two, GC
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

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// Arguments: the version of the network, the ID of a container that is valid if any. The plugin writes what it was called for.
func main() {
	here, err := os.Getwd()
	must(err)
	cache, err := os.MkdirTemp(here, "cache")
	must(err)
	c := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(here, "plugins")}, cache, nil)
	network, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":%q,"name":"finding","plugins":[{"type":"recorder"}]}`, os.Args[1]))
	must(err)
	for _, id := range []string{"one", "two"} {
		_, err = c.AddNetworkList(context.Background(), network, &libcni.RuntimeConf{ContainerID: id, NetNS: "/proc/self/ns/net", IfName: "eth0"})
		must(err)
	}
	var args *libcni.GCArgs
	if len(os.Args) > 2 {
		args = &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: os.Args[2], IfName: "eth0"}}}
	}
	must(c.GCNetworkList(context.Background(), network, args))
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire github.com/containernetworking/cni v1.3.1\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

mkdir plugins
cat >plugins/recorder <<'SH'
#!/usr/bin/env bash
cat >/dev/null
echo "${CNI_COMMAND}${CNI_CONTAINERID:+ ${CNI_CONTAINERID}}" >>called
if [[ ${CNI_COMMAND} == ADD ]]; then echo '{"cniVersion":"1.0.0"}'; fi
SH
chmod +x plugins/recorder

calls() {
  : >called
  ./finding "$@"
  paste -s -d , called | sed 's/,/, /g'
}

got=$(
  echo "1.0.0 with nil: $(calls 1.0.0)"
  echo "1.0.0 with one: $(calls 1.0.0 one)"
  echo "1.1.0 with nil: $(calls 1.1.0)"
)
echo "${got}"
[[ ${got} == '1.0.0 with nil: ADD one, ADD two, DEL one, DEL two
1.0.0 with one: ADD one, ADD two, DEL two
1.1.0 with nil: ADD one, ADD two, DEL one, DEL two, GC' ]] || exit 1
