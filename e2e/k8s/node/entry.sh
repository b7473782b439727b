#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Makes a node of a container and runs containerd and the kubelet in it. The
# container has all capabilities but SYS_RESOURCE, a cgroup namespace and these
# mounts: /node (read-only: components, configuration), a volume each for
# /var/lib/containerd and /var/lib/kubelet. NODE and IP are its name and address,
# API is the address and port of the API server.
set -euo pipefail
: "${NODE:?}" "${IP:?}" "${API:?}"

# A plain remount is refused on cgroup v1: the mount belongs to the host.
for hierarchy in /sys/fs/cgroup/*/; do
	mount -o remount,bind,rw "${hierarchy%/}" 2>/dev/null || true
done
mount -o remount,rw /sys
[ -n "${NO_BPFFS:-}" ] || mount -t bpf bpf /sys/fs/bpf
mount --make-rshared /
# The kubelet watches it for processes that ran out of memory.
[ -e /dev/kmsg ] || mknod /dev/kmsg c 1 11

# The kubelet writes these and demands their values, and Cilium writes the last
# two. They belong to the whole machine (panic_on_oops would reboot it), so the
# node gets files of its own.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000 \
	kernel/unprivileged_bpf_disabled=2 kernel/timer_migration=1; do
	[ -e "/proc/sys/${setting%=*}" ] || continue
	private=/run/sysctl/${setting%=*}
	mkdir -p "${private%/*}"
	echo "${setting#*=}" >"$private"
	mount --bind "$private" "/proc/sys/${setting%=*}"
done
echo 1 >/proc/sys/net/ipv4/ip_forward

# What kube-proxy does for the one Service that is used, in one rule.
iptables -t nat -A OUTPUT -d 10.96.0.1 -p tcp --dport 443 -j DNAT --to-destination "$API"

# Charts of CNIs mount /lib/modules, also where the kernel has none.
mkdir -p /etc/containerd /etc/cni/net.d /opt/cni/bin /lib/modules
cp /node/components/cni/* /opt/cni/bin/
export PATH=/node/components:$PATH
containerd --config /node/config/containerd.toml >/var/log/containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.05; done
# A node that was restarted has them.
if [ ! -e /var/lib/containerd/imported ]; then
	for image in /node/images/*.tar; do
		ctr -n k8s.io images import "$image" >/dev/null
	done
	# "make image" tags by the version of the source, and the chart names its own.
	ctr -n k8s.io images list -q | sed -n '/^localhost\/podweir\/podweir:/{/:0\.1\.0$/!p}' |
		xargs -rI{} ctr -n k8s.io images tag --force {} localhost/podweir/podweir:0.1.0 >/dev/null
fi
touch /var/lib/containerd/imported
exec kubelet --config=/node/config/kubelet.yaml --kubeconfig="/node/config/$NODE.kubeconfig" \
	--hostname-override="$NODE" --node-ip="$IP" >/var/log/kubelet.log 2>&1
