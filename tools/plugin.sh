#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Packs the binaries of kubectl podweir that "make release-plugin" built, each with the
# script for kubectl's completion (but for Windows), podweir's licence and those of all modules in it, and checks the archives: the
# checksums, and that each binary is one for its platform and of this version. The
# same binaries give the same archives. It fetches nothing that the build did not.
#
# plugin.sh VERSION CREATED PLATFORM...   CREATED is the time of all files, in seconds
#                                         since 1970; a PLATFORM is OS/ARCH.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?VERSION}
created=${2:?CREATED}
shift 2
out=$PWD/bin/release-plugin
module=plugin/cmd/kubectl-podweir
completion=kubectl_complete-podweir
sums=SHA256SUMS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "plugin: $*" >&2
	exit 1
}

# program PLATFORM: the name of the binary there.
program() {
	if [[ "$1" = windows/* ]]; then echo kubectl-podweir.exe; else echo kubectl-podweir; fi
}

# archive PLATFORM
archive() { echo "kubectl-podweir_${1%/*}_${1#*/}.tar.gz"; }

# licences_of NAME DIR: copies the licences of a module, which has to have one.
licences_of() {
	local files
	files=$(find "$2" -maxdepth 1 -type f -regextype posix-extended -iregex '.*/(LICEN[CS]E|COPYING|NOTICE)([.-].*)?')
	[ -n "$files" ] || fail "$1 has no licence in $2"
	install -d "$tree/licenses/$1"
	while read -r file; do install -m 0644 "$file" "$tree/licenses/$1/"; done <<<"$files"
}

pack() {
	local platform=$1 tree=$work/$1 modules
	install -D -m 0755 "$out/$platform/$(program "$platform")" "$tree/$(program "$platform")"
	[[ "$platform" = windows/* ]] || install -m 0755 "$module/$completion" "$tree/"
	install -m 0644 LICENSE "$tree/"
	licences_of go "$(go env GOROOT)"
	modules=$(cd "$module" && GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 \
		go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' . | sort -u)
	while read -r name dir; do licences_of "$name" "$dir"; done <<<"$modules"
	tar -C "$tree" --sort=name --mtime="@$created" --owner=0 --group=0 --numeric-owner --mode=go-w -cf - . |
		gzip -9n >"$out/$(archive "$platform")"
}

# check PLATFORM: what a user unpacks is what its name says.
check() {
	local platform=$1 tree=$work/check/$1 built binary
	install -d "$tree"
	tar -C "$tree" -xzf "$out/$(archive "$platform")"
	binary=$tree/$(program "$platform")
	built=$(go version -m "$binary")
	for setting in "GOOS=${platform%/*}" "GOARCH=${platform#*/}" CGO_ENABLED=0; do
		grep -qP "^\tbuild\t$setting\$" <<<"$built" || fail "$(archive "$platform"): the binary is not built with $setting"
	done
	grep -aqF -- "$version" "$binary" || fail "$(archive "$platform"): the binary is not of version $version"
	[ -s "$tree/licenses/k8s.io/client-go/LICENSE" ] || fail "$(archive "$platform"): no licence of k8s.io/client-go"
	if [ "$platform" = "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" ]; then
		[ "$("$binary" --version)" = "$version" ] || fail "$(archive "$platform"): --version says \"$("$binary" --version)\", want \"$version\""
		"$binary" explain PW602 >/dev/null
		PATH="$tree:$PATH" "$tree/$completion" to | grep "^top" >/dev/null || fail "$(archive "$platform"): $completion does not complete top"
	fi
}

rm -f "$out"/*.tar.gz "$out/$sums"
for platform; do pack "$platform"; done
(cd "$out" && sha256sum -- *.tar.gz >"$sums" && sha256sum --check --quiet "$sums")
for platform; do check "$platform"; done
echo "plugin: $out has $version: $(cd "$out" && echo ./*.tar.gz)"
