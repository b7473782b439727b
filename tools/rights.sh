#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Says in one line what this machine or container does not let the tests do, before
# anything is built. Tries it where that is cheap and leaves nothing behind.
#
# rights.sh [cluster]     cluster: what dockerd and its nodes need, too
set -euo pipefail

lacks=()

# may NAME COMMAND...: NAME is what is missing if the command fails.
may() {
	if ! "${@:2}" >/dev/null 2>&1; then
		lacks+=("$1")
	fi
}

# has BIT: the effective set has this capability (include/uapi/linux/capability.h).
has() { (((16#$(sed -n 's/^CapEff:\s*//p' /proc/self/status) >> $1) & 1)); }

# cgroup makes a control group and removes it.
cgroup() {
	local dir
	dir=$(mktemp -d /sys/fs/cgroup/podweir-rights.XXXXXX) && rmdir "$dir"
}

if [ "$(id -u)" -ne 0 ]; then
	lacks+=(root)
else
	may CAP_NET_ADMIN has 12
	may CAP_NET_RAW has 13
	may CAP_SYS_ADMIN has 21
	may CAP_BPF has 39
	may "new network namespaces" unshare --net true
	may "mounts of bpffs" unshare --mount bash -c 'mount -t bpf bpf /mnt'
	may "a writable /proc/sys" unshare --net bash -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
	may "a writable /run" test -w /run
	if [ "${1:-}" = cluster ]; then
		may "a writable /sys/fs/cgroup" cgroup
	fi
fi

if [ "${#lacks[@]}" -gt 0 ]; then
	printf -v all '%s, ' "${lacks[@]}"
	echo "the tests cannot run here, without ${all%, }. Run them as root; in a container: docker run --rm --privileged --cgroupns=host -v /var/lib/docker -v \"\$PWD:/src\" -w /src golang:1.26-bookworm make test" >&2
	exit 1
fi
