#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Says in one line what this machine or container does not let the tests do, before
# anything is built. Tries it where that is cheap and leaves nothing behind.
#
# rights.sh [TARGET]      the target of make that wants them, "test" if it is not said; any
#                         other has a cluster, too: dockerd and its nodes need more
set -euo pipefail

target=${1:-test}
lacks=()

# may NAME COMMAND...: NAME is what is missing if the command fails.
may() {
	if ! "${@:2}" >/dev/null 2>&1; then
		lacks+=("$1")
	fi
}

# has MASK: the effective set has these capabilities; bit N is the one that
# include/uapi/linux/capability.h has as N.
has() { (((16#$(sed -n 's/^CapEff:\s*//p' /proc/self/status) & $1) == $1)); }

# bpf loads two instructions, "return 0", as a SCHED_CLS program: in a user namespace
# root has the capabilities, and yet may not. Perl is in every Debian.
bpf() {
	command -v perl || return 0
	perl -e '
		my $number = {x86_64 => 321, aarch64 => 280}->{$ARGV[0]} or exit 0;
		my ($code, $license) = (pack("C2sl" x 2, 0xb7, 0, 0, 0, 0x95, 0, 0, 0), "GPL\0");
		my $attr = pack("L2Q2L2Qx80", 3, 2, unpack("Q", pack("P", $code)), unpack("Q", pack("P", $license)), 0, 0, 0);
		exit(syscall($number, 5, $attr, length $attr) < 0);
	' "$(uname -m)"
}

# cgroup makes a control group in each hierarchy that dockerd needs, that of version 2
# or two of version 1, and removes it.
cgroup() {
	local dir made=1
	for dir in /sys/fs/cgroup /sys/fs/cgroup/memory /sys/fs/cgroup/pids; do
		[ -e "$dir/cgroup.procs" ] || continue
		dir=$(mktemp -d "$dir/podweir-rights.XXXXXX") || return 1
		rmdir "$dir"
		made=0
	done
	return "$made"
}

# disk: dockerd's files are not on overlayfs, which cannot lie on itself.
disk() {
	local dir=/var/lib/docker
	[ -d "$dir" ] || dir=/var/lib
	[ "$(stat --file-system --format=%T "$dir")" != overlayfs ]
}

if [ "$(id -u)" -ne 0 ]; then
	lacks+=(root)
else
	for capability in SETPCAP:8 NET_ADMIN:12 NET_RAW:13 SYS_ADMIN:21 SYS_NICE:23; do
		may "CAP_${capability%:*}" has $((1 << ${capability#*:}))
	done
	may "BPF programs" bpf
	may "new network namespaces" unshare --net true
	may "mounts of bpffs" unshare --mount bash -c 'mount -t bpf bpf /mnt'
	may "a writable /proc/sys" unshare --net bash -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
	may "a writable /run" test -w /run
	if [ "$target" != test ]; then
		# What e2e/k8s/cluster gives a node: the first 38 without SYS_RESOURCE.
		may "the capabilities of a cluster's node" has $(((1 << 38) - 1 - (1 << 24)))
		may "a writable /sys/fs/cgroup" cgroup
		# Every cgroup has this file but the host's root, and only that may hold
		# processes beside the cgroups of containers.
		may "the host's cgroup namespace" test ! -e /sys/fs/cgroup/cgroup.events
		may "a /var/lib/docker beside overlayfs" disk
	fi
fi

if [ "${#lacks[@]}" -gt 0 ]; then
	printf -v all '%s, ' "${lacks[@]}"
	echo "the tests cannot run here, without ${all%, }. Run them as root; in a container: docker run --rm --privileged --cgroupns=host -v /var/lib/docker -v \"\$PWD:/src\" -w /src golang:1.26-bookworm make $target" >&2
	exit 1
fi
