#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Helm 3.22: "format" in values.schema.json is checked only if "$schema" names draft 7 or older; 3.16 always checks it.
#
# One would guess: a chart whose schema says "format": "ipv4" refuses any other text with each Helm 3, whichever draft
#   the schema names. Helm's page about charts mentions neither drafts nor a difference.
# Seen: Helm changed its validator within Helm 3 (from xeipuuv/gojsonschema to santhosh-tekuri/jsonschema). The new
#   one reads a schema without "$schema" as draft 2020-12, in which "format" is an annotation and is not enforced. The
#   same chart and the same value: an error in 3.16.4, nothing in 3.22.0. With "$schema" of draft 7 both refuse.
# Who is hurt: charts that guard networks, addresses, URLs or times by "format": after an upgrade of Helm, `helm
#   install` and `helm lint` accept a typing error, and the pod fails instead. A test with an older Helm misses it.
# Version: helm.sh/helm/v3 v3.16.4 and v3.22.0 (ValidateAgainstSingleSchema in pkg/chartutil).
# Output:
#   v3.16.4: no $schema refused, draft-07 refused, 2020-12 refused
#   v3.22.0: no $schema accepted, draft-07 refused, 2020-12 accepted
#
# Needs Go and the Go module proxy; takes two minutes of processor time. Exits with 1 if that is no longer so, with 2
# if it could not run.
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
	"strings"

	"helm.sh/helm/v3/pkg/chartutil"
)

func main() {
	var out []string
	for _, draft := range []struct{ name, line string }{
		{"no $schema", ""},
		{"draft-07", `"$schema": "http://json-schema.org/draft-07/schema#", `},
		{"2020-12", `"$schema": "https://json-schema.org/draft/2020-12/schema", `},
	} {
		schema := "{" + draft.line + `"type": "object", "properties": {"gateway": {"type": "string", "format": "ipv4"}}}`
		verdict := "accepted"
		if chartutil.ValidateAgainstSingleSchema(chartutil.Values{"gateway": "192.0.2.300"}, []byte(schema)) != nil {
			verdict = "refused"
		}
		out = append(out, draft.name+" "+verdict)
	}
	fmt.Println(strings.Join(out, ", "))
}
GO
for version in v3.16.4 v3.22.0; do
	printf 'module finding\n\ngo 1.25\n\nrequire helm.sh/helm/v3 %s\n' "${version}" >go.mod
	rm -f go.sum
	CGO_ENABLED=0 go build -o "finding-${version}" . 2>/dev/null
done
got=$(for version in v3.16.4 v3.22.0; do echo "${version}: $(./finding-"${version}")"; done)
echo "${got}"
# shellcheck disable=SC2016 # the name of a key
[[ ${got} == 'v3.16.4: no $schema refused, draft-07 refused, 2020-12 refused
v3.22.0: no $schema accepted, draft-07 refused, 2020-12 accepted' ]] || exit 1
