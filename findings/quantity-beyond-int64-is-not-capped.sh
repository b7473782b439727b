#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# apimachinery: Quantity.Value() of 20E and of 9.3E is 0; nothing caps the value or reports an error.
#
# One would guess: a value of 2^63-1. The documentation of Quantity says that no quantity "may represent a number
#   greater than 2^63-1 in magnitude" and that larger ones "will be capped". Or an error when the text is parsed.
# Seen: ParseQuantity accepts 20E and keeps all of it: String() is 20E, and Cmp finds it above 1P. Value() returns the
#   low 64 bits of the scaled number, or 0, without an error. MilliValue() and ScaledValue() do the same from 9.3P on;
#   only for MilliValue() "could overflow" is documented. The second value that AsInt64 returns reports the overflow.
# Who is hurt: programs that read a rate, a size or a limit of an annotation with Value(). A value meant as unlimited,
#   with one zero too many, becomes zero or any other number, although every comparison of quantities accepted it.
# Version: k8s.io/apimachinery v0.34.2.
# Output:
#   1E: String 1E, Value 1000000000000000000, above 1P true
#   20E: String 20E, Value 0, above 1P true
#   9.3E: String 9300P, Value 0, above 1P true
#   100000000000G: String 100E, Value 7766279631452241920, above 1P true
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

	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	peta := resource.MustParse("1P")
	for _, text := range os.Args[1:] {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			fmt.Println(text, err)
			continue
		}
		fmt.Printf("%s: String %s, Value %d, above 1P %v\n", text, q.String(), q.Value(), q.Cmp(peta) > 0)
	}
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire k8s.io/apimachinery v0.34.2\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

got=$(./finding 1E 20E 9.3E 100000000000G)
echo "${got}"
[[ ${got} == '1E: String 1E, Value 1000000000000000000, above 1P true
20E: String 20E, Value 0, above 1P true
9.3E: String 9300P, Value 0, above 1P true
100000000000G: String 100E, Value 7766279631452241920, above 1P true' ]] || exit 1
