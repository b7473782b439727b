#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Puts podweir's container image together from binaries that are built already: an OCI
# tar for all architectures, a tar for "docker load" of this machine's, and for each a
# list of what is linked in (SPDX 2.3). It uses no registry, no daemon and no base image,
# and the same binaries give the same digest (GNU tar, gzip). ko does not fit: it makes an image of one
# program on a base image, and this one has two programs, the licences of all that is
# linked in, their SBOM, and no base.
#
# image.sh VERSION REVISION CREATED REFERENCE     CREATED is in seconds since 1970.
#
# Prints REFERENCE and the digest by which a registry will know the image. "make image"
# calls it in the directory of go.mod. OUT has the binaries in a directory for each of
# ARCHS, and gets the results.
set -euo pipefail
shopt -s nocasematch
export LC_ALL=C
unset TAR_OPTIONS GZIP

version=$1 revision=$2 created=$3 reference=$4
out=${OUT:-bin/image}
read -ra archs <<<"${ARCHS:-amd64 arm64}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
layout=$work/layout
mkdir -p "$layout/blobs/sha256"
when=$(date -u -d "@$created" +%Y-%m-%dT%H:%M:%SZ)

fail() {
	echo "image: $1" >&2
	exit 1
}

sum() { sha256sum "$1" | cut -d ' ' -f 1; }

# pack DIR OUT: a tar of what is in a directory, without anything of this machine.
pack() {
	(cd "$1" && tar --create --file "$2" --format ustar --sort name --owner 0 --group 0 --numeric-owner \
		--mtime "@$created" --mode u=rwX,go=rX -- *)
}

# blob FILE TYPE [MORE]: moves a file to the contents of the image, and prints how others
# of them refer to it, with more members.
blob() {
	local digest
	digest=$(sum "$1")
	printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%d%s}' "$2" "$digest" "$(stat --format %s "$1")" "${3:-}"
	mv "$1" "$layout/blobs/sha256/$digest"
}

# digest REFERENCE: the hexadecimal digest in what blob printed.
digest() {
	local rest=${1#*\"sha256:}
	echo "${rest%%\"*}"
}

# licences FROM TO: copies the licence files of a module. One without any may not be
# handed on.
licences() {
	local file found=
	for file in "$1"/*; do
		if [ -f "$file" ] && [[ ${file##*/} =~ ^(licen[cs]e|copying|notice)([.-].*)?$ ]]; then
			install -D -m 0644 "$file" "$2/${file##*/}"
			found=1
		fi
	done
	[ -n "$found" ] || fail "$1 holds no licence"
}

# sbom ARCH LINKED: what is linked in, from lines of "go version -m", each program's behind
# one with its name and checksum.
sbom() {
	awk -F '\t' -v name="podweir-$version-linux-$1" -v version="$version" -v when="$when" -v hash="$(sum "$2")" '
	function id(s) { gsub(/[^A-Za-z0-9.-]+/, "-", s); return "SPDXRef-" s }
	function package(is, name, version, purpose, licence, more) {
		packages = packages (packages ? ",\n" : "") "    {\"SPDXID\": \"" is "\", \"name\": \"" name "\", \"versionInfo\": \"" version \
			"\", \"primaryPackagePurpose\": \"" purpose "\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false" \
			", \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"" licence "\", \"copyrightText\": \"NOASSERTION\"" more "}"
	}
	function relation(from, type, to) {
		relations = relations (relations ? ",\n" : "") "    {\"spdxElementId\": \"" from "\", \"relationshipType\": \"" type \
			"\", \"relatedSpdxElement\": \"" to "\"}"
	}
	function library(name, version, sum) {
		if (!seen[name, version]++)
			package(id(name "-" version), name, version, "LIBRARY", "NOASSERTION", (sum ? ", \"sourceInfo\": \"go.sum " sum "\"" : "") \
				", \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": \"pkg:golang/" name "@" version "\"}]")
		relation(program, "DEPENDS_ON", id(name "-" version))
	}
	$1 == "program" {
		program = id("program-" $2)
		package(program, $2, version, "APPLICATION", "Apache-2.0", ", \"checksums\": [{\"algorithm\": \"SHA256\", \"checksumValue\": \"" $3 "\"}]")
		relation("SPDXRef-DOCUMENT", "DESCRIBES", program)
	}
	$1 ~ /: go/ { sub(/.*: go/, "", $1); library("stdlib", $1, "") }
	$2 == "dep" { library($3, $4, $5) }
	END {
		print "{\n  \"spdxVersion\": \"SPDX-2.3\", \"dataLicense\": \"CC0-1.0\", \"SPDXID\": \"SPDXRef-DOCUMENT\", \"name\": \"" name "\"," \
			"\n  \"documentNamespace\": \"https://github.com/podweir/podweir/spdx/" name "-" hash "\"," \
			"\n  \"creationInfo\": {\"created\": \"" when "\", \"creators\": [\"Tool: podweir-tools-image\"]}," \
			"\n  \"packages\": [\n" packages "\n  ],\n  \"relationships\": [\n" relations "\n  ]\n}"
	}' "$2"
}

# The keys are those of the OCI image specification, "Annotations".
labels="{\"org.opencontainers.image.title\":\"podweir\",\
\"org.opencontainers.image.description\":\"Per-pod bandwidth limits with a queue in which light flows go first\",\
\"org.opencontainers.image.source\":\"https://github.com/podweir/podweir\",\
\"org.opencontainers.image.licenses\":\"Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)\",\
\"org.opencontainers.image.version\":\"$version\",\"org.opencontainers.image.created\":\"$when\"\
${revision:+,\"org.opencontainers.image.revision\":\"$revision\"}}"

manifests=
for arch in "${archs[@]}"; do
	papers=$work/papers programs=$work/programs linked=$work/linked
	rm -rf "$papers" "$programs" "$linked"
	for name in podweir podweir-cni; do
		file=$out/$arch/$name
		# A module that is replaced stands before the one in its place.
		info=$(go version -m "$file" | tr '\n' '\r' | sed 's/\r\tdep\t[^\r]*\r\t=>/\r\tdep/g' | tr '\r' '\n')
		# The image has no libraries and no loader: a binary must ask for none.
		for setting in "GOARCH=$arch" CGO_ENABLED=0; do
			grep -qx $'\tbuild\t'"$setting" <<<"$info" || fail "$file is not built with $setting"
		done
		install -D -m 0755 "$file" "$programs/usr/local/bin/$name"
		printf 'program\t%s\t%s\n%s\n' "$name" "$(sum "$file")" "${info#"$out/$arch/"}" >>"$linked"
	done
	sbom "$arch" "$linked" >"$out/podweir-$arch.spdx.json"
	install -D -m 0644 "$out/podweir-$arch.spdx.json" "$papers/sbom/podweir.spdx.json"
	licences . "$papers/licenses"
	licences "$(go env GOROOT)" "$papers/licenses/go"
	mapfile -t modules < <(awk -F '\t' '$2 == "dep" { print $3 "@" $4 }' "$linked" | sort -u)
	listed=$(go list -m -f '{{.Path}} {{.Dir}}' "${modules[@]}")
	while read -r module dir; do
		licences "$dir" "$papers/licenses/$module"
	done <<<"$listed"

	ids='' layers='' files=''
	for layer in "$papers" "$programs"; do
		pack "$layer" "$work/layer.tar"
		ids+=",\"sha256:$(sum "$work/layer.tar")\""
		gzip --no-name --force "$work/layer.tar"
		one=$(blob "$work/layer.tar.gz" layer.v1.tar+gzip)
		layers+=",$one" files+=" $(digest "$one")"
	done
	# PATH lets "kubectl exec" find programs by name.
	printf '{"architecture":"%s","os":"linux","created":"%s","config":{"User":"0:0","Env":["PATH=/usr/local/bin"],%s,"WorkingDir":"/","Labels":%s},%s}' \
		"$arch" "$when" '"Entrypoint":["/usr/local/bin/podweir"],"Cmd":["agent"]' "$labels" \
		"\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[${ids#,}]}" >"$work/config"
	config=$(blob "$work/config" config.v1+json)
	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s],"annotations":%s}' \
		"$config" "${layers#,}" "$labels" >"$work/manifest"
	manifests+=",$(blob "$work/manifest" manifest.v1+json ",\"platform\":{\"architecture\":\"$arch\",\"os\":\"linux\"}")"

	# "docker load", old versions too, reads one architecture in a form of its own.
	if [ "$arch" = "$(go env GOHOSTARCH)" ]; then
		docker=$work/docker
		mkdir "$docker"
		cp "$layout/blobs/sha256/$(digest "$config")" "$docker/config.json"
		names=
		for file in $files; do
			cp "$layout/blobs/sha256/$file" "$docker/$file.tar.gz"
			names+=",\"$file.tar.gz\""
		done
		printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":[%s]}]' "$reference" "${names#,}" >"$docker/manifest.json"
		pack "$docker" "$work/docker.tar"
		mv "$work/docker.tar" "$out/podweir-docker.tar"
	fi
done

printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s],"annotations":%s}' "${manifests#,}" "$labels" >"$work/index"
# Importers look for the image's own name under two keys: the specification's, which gives
# the tag, and containerd's, which gives all.
top=$(blob "$work/index" index.v1+json ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"${reference##*:}\",\"io.containerd.image.name\":\"$reference\"}")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}' "$top" >"$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
pack "$layout" "$work/oci.tar"
mv "$work/oci.tar" "$out/podweir-oci.tar"
echo "$reference sha256:$(digest "$top")"
