#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Deletes the generated objects and bindings, makes them again and fails if
# they are not what is committed. Refuses any clang but the pinned one, which
# would make another object.
set -euo pipefail

cd "$(dirname "$0")/.."
pinned=$(cat bpf/CLANG_VERSION)
version=${pinned#*:}
version=${version%%-*}
if ! installed=$(clang-19 --version 2> /dev/null); then
  echo "check-generate: clang-19 is not installed; the pinned package is clang-19 ${pinned}" >&2
  exit 1
fi
if [[ ! ${installed} =~ version\ ${version//./\\.}[^0-9] ]]; then
  echo "check-generate: clang-19 is ${installed%%$'\n'*}, the pinned package is clang-19 ${pinned}" >&2
  exit 1
fi

kept=$(mktemp -d)
trap 'rm -rf "${kept}"' EXIT
generated=(bpf/podweir_bpfel.o bpf/bpftest/bpftest_bpfel.o bpf/image/generated.go bpf/image/instructions.bin
  e2e/lab/wiremeter/wire_bpfel.o e2e/rivals/police_bpfel.o)
cp --parents "${generated[@]}" "${kept}"
rm "${generated[@]}"
if ! make --no-print-directory generate; then
  cp -r "${kept}/." .
  exit 1
fi
for file in "${generated[@]}"; do
  if ! cmp "${kept}/${file}" "${file}"; then
    echo "check-generate: ${file} does not belong to its source; commit the one that is there now" >&2
    exit 1
  fi
done
