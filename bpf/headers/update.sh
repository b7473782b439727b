#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Takes the headers that the BPF programs include from the installed Debian
# packages linux-libc-dev and libbpf-dev, and records their versions, so that
# the object does not depend on what a build machine has installed.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
uapi=(
  asm-generic/bitsperlong.h asm-generic/int-ll64.h asm-generic/posix_types.h
  asm-generic/swab.h asm-generic/types.h
  linux/bpf.h linux/bpf_common.h linux/byteorder/little_endian.h linux/const.h linux/if_ether.h
  linux/in.h linux/in6.h linux/ip.h linux/ipv6.h linux/libc-compat.h linux/pkt_cls.h
  linux/pkt_sched.h linux/posix_types.h linux/socket.h linux/stddef.h linux/swab.h
  linux/types.h
)
libbpf=(bpf_endian.h bpf_helper_defs.h bpf_helpers.h)

rm -rf "${here:?}/asm" "${here:?}/asm-generic" "${here:?}/bpf" "${here:?}/linux"
for header in "${uapi[@]}"; do
  install -D -m 0644 "/usr/include/${header}" "${here}/${header}"
done
for header in "${libbpf[@]}"; do
  install -D -m 0644 "/usr/include/bpf/${header}" "${here}/bpf/${header}"
done

# One object serves every architecture: the generic asm headers, little-endian.
mkdir -p "${here}/asm"
for header in bitsperlong posix_types swab types; do
  echo "#include <asm-generic/${header}.h>" > "${here}/asm/${header}.h"
done
echo "#include <linux/byteorder/little_endian.h>" > "${here}/asm/byteorder.h"

dpkg-query --show --showformat='${Package} ${Version}\n' linux-libc-dev libbpf-dev \
  > "${here}/VERSIONS"
