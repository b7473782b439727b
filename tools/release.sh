#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Puts what a release has into bin/release: the image for both architectures as an
# OCI layout with its digest and SBOMs, the packaged chart, kubectl podweir for each
# platform, the notes from CHANGELOG.md and SHA256SUMS. "make release-check" builds
# image and plugin first. It pushes nothing and signs nothing.
#
# release.sh VERSION HELM     VERSION is vX.Y.Z; or "dry-run", which takes the
#                             chart's version and the notes of "Unreleased".
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?VERSION}
helm=${2:?HELM, the path of the program}
chart=$(sed -n 's/^version: //p' chart/Chart.yaml)
if [ "$version" = dry-run ]; then
	number=$chart section=Unreleased
elif [[ "$version" =~ ^v([0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?)$ ]]; then
	number=${BASH_REMATCH[1]} section=$number
else
	echo "release: version \"$version\" is not accepted, want vX.Y.Z, vX.Y.Z-PRE or dry-run" >&2
	exit 1
fi

# same FILE WHAT VALUE: the tag, the chart and the image must be one release.
same() {
	if [ "$3" != "$number" ]; then
		echo "release: $1: $2 is \"$3\", want \"$number\"" >&2
		exit 1
	fi
}
same chart/Chart.yaml version "$chart"
same chart/Chart.yaml appVersion "$(sed -n 's/^appVersion: //p' chart/Chart.yaml | tr -d '"')"
same chart/values.yaml image.tag "$(sed -n 's/^  tag: //p' chart/values.yaml | tr -d '"')"

# The last whole run ("make test-all") must have passed, at this commit or at one from
# which only its own page and the notes differ.
page=docs/contributing/testing.md
cell() { sed -n "/^<!-- run: begin/,/^<!-- run: end/s/^| $1 | *//p" "$page" | tr -d '\`|' | sed 's/ *$//'; }
tested=$(cell commit) result=$(cell result)
if [ "$result" != passed ] || ! git diff --quiet "$tested" HEAD -- . ":!$page" ':!CHANGELOG.md' 2>/dev/null; then
	echo "release: the last whole run is of commit $tested, result: $result; run \"make test-all\" at $(git rev-parse --short HEAD)" >&2
	[ "$version" = dry-run ] || exit 1
fi

out=bin/release
rm -rf "$out"
mkdir -p "$out"
awk -v want="## [$section]" 'index($0, "## [") == 1 { on = index($0, want) == 1; next } on' CHANGELOG.md >"$out/notes.md"
if ! grep -q '[^[:space:]]' "$out/notes.md"; then
	echo "release: CHANGELOG.md has no section \"[$section]\", or nothing in it" >&2
	exit 1
fi
cp bin/image/podweir-oci.tar bin/image/podweir-amd64.spdx.json bin/image/podweir-arm64.spdx.json bin/image/digest "$out/"
cp bin/release-plugin/*.tar.gz "$out/"
# The released chart names the released image. Both lines are written by tools/image.
read -r reference digest <bin/image/digest
copy=bin/release-chart
rm -rf "$copy"
mkdir -p "$copy"
cp -R chart "$copy/podweir"
path=${reference%:*}
sed -i -e "s|^  registry: .*|  registry: ${path%%/*}|" -e "s|^  repository: .*|  repository: ${path#*/}|" \
	-e "s|^  digest: .*|  digest: $digest|" "$copy/podweir/values.yaml"
"$helm" package "$copy/podweir" --destination "$out" >/dev/null
kube=$(sed -n 's/^kubeVersion: ">=\(.*\)-0"$/\1/p' chart/Chart.yaml)
shown=$("$helm" template podweir "$out/podweir-$chart.tgz" --namespace kube-system --kube-version "$kube" | sed -n 's/^ *image: "\(.*\)"$/\1/p' | sort -u)
if [ "$shown" != "$reference@$digest" ]; then
	echo "release: the packaged chart names \"$shown\", want \"$reference@$digest\"" >&2
	exit 1
fi
(cd "$out" && sha256sum -- podweir-oci.tar podweir-*.tgz kubectl-podweir_*.tar.gz podweir-*.spdx.json digest >SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
printf '\nImage: %s\n' "$(cat "$out/digest")" >>"$out/notes.md"
echo "release: $out has $number: $(cd "$out" && echo ./*)"
