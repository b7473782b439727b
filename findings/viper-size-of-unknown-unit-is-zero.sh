#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# viper: GetSizeInBytes turns "10M", "10MiB" and "1TB" into 0, cuts "1.5MB" to 1 MiB, and reports no error.
#
# One would guess: a size is read as Kubernetes or systemd read it, or is refused: the method's comment says that it
#   returns the size in bytes, and names no unit.
# Seen: the only units are b, kb, mb and gb, in either case, and powers of 1024 (parseSizeInBytes in util.go).
#   Any other text goes through cast.ToInt, whose error is dropped, so that it is 0; a fraction is cut off before the
#   unit is applied; a negative size is 0 as well. IsSet is true for all of them, so it does not tell either.
# Who is hurt: programs that read a limit, a bucket or a buffer this way. 0 mostly means "no limit" or "use the
#   default", so a spelling that is right elsewhere in the same cluster removes the limit in silence.
# Version: github.com/spf13/viper v1.21.0.
# Output:
#   10MB: 10485760, set true
#   10M: 0, set true
#   10Mi: 0, set true
#   10MiB: 0, set true
#   1TB: 0, set true
#   1.5MB: 1048576, set true
#   0.5GB: 0, set true
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

	"github.com/spf13/viper"
)

func main() {
	for _, size := range []string{"10MB", "10M", "10Mi", "10MiB", "1TB", "1.5MB", "0.5GB"} {
		v := viper.New()
		v.SetConfigType("yaml")
		if err := v.ReadConfig(strings.NewReader("buffer: " + size + "\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		fmt.Printf("%s: %d, set %t\n", size, v.GetSizeInBytes("buffer"), v.IsSet("buffer"))
	}
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire github.com/spf13/viper v1.21.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null
got=$(./finding)
echo "${got}"
[[ ${got} == '10MB: 10485760, set true
10M: 0, set true
10Mi: 0, set true
10MiB: 0, set true
1TB: 0, set true
1.5MB: 1048576, set true
0.5GB: 0, set true' ]] || exit 1
