#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# viper: a list from the environment is split at spaces by GetStringSlice and at commas by Unmarshal.
#
# One would guess: a value has one reading. A flag of pflag's type StringSlice that is bound to viper is split at
#   commas on the command line, so its environment variable is as well, by each way to read it.
# Seen: APP_EXEMPT=10.0.0.0/8,192.0.2.0/24 is one string of two networks for GetStringSlice (cast.ToStringSlice
#   splits at white space) and two networks for Unmarshal (mapstructure's hook splits at commas).
#   With a space between them it is the other way round. The type of the bound flag is not asked.
#   The documentation of AutomaticEnv and BindPFlags does not speak of lists.
# Who is hurt: programs with cobra and viper whose list (exempt networks, interfaces, namespaces) is set by flag in
#   a test and by variable in a pod. One that reads by both ways has two lists. Where no network
#   matches the joined string, nothing is exempt, without an error.
# Version: github.com/spf13/viper v1.21.0, github.com/spf13/pflag v1.0.10.
# Output:
#   flag with a comma: GetStringSlice 2, Unmarshal 2
#   variable with a comma: GetStringSlice 1, Unmarshal 2
#   variable with a space: GetStringSlice 2, Unmarshal 1
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

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	flags := pflag.NewFlagSet("app", pflag.ContinueOnError)
	flags.StringSlice("exempt", nil, "networks")
	must(flags.Parse(os.Args[1:]))
	v := viper.New()
	v.SetEnvPrefix("app")
	v.AutomaticEnv()
	must(v.BindPFlags(flags))
	var config struct{ Exempt []string }
	must(v.Unmarshal(&config))
	fmt.Printf("GetStringSlice %d, Unmarshal %d\n", len(v.GetStringSlice("exempt")), len(config.Exempt))
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire (\n\tgithub.com/spf13/pflag v1.0.10\n\tgithub.com/spf13/viper v1.21.0\n)\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

got=$(
  echo "flag with a comma: $(./finding --exempt 10.0.0.0/8,192.0.2.0/24)"
  echo "variable with a comma: $(APP_EXEMPT='10.0.0.0/8,192.0.2.0/24' ./finding)"
  echo "variable with a space: $(APP_EXEMPT='10.0.0.0/8 192.0.2.0/24' ./finding)"
)
echo "${got}"
[[ ${got} == 'flag with a comma: GetStringSlice 2, Unmarshal 2
variable with a comma: GetStringSlice 1, Unmarshal 2
variable with a space: GetStringSlice 2, Unmarshal 1' ]] || exit 1
