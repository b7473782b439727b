#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Process 1 of a machine. It makes the host's files its root, read-only below and what the
# machine writes in memory above, runs /run/vmrig/job there, and powers off. The kernel hands
# on VMRIG_MODULES, the host's directory with lib/modules, and the machine's host name.
# shellcheck shell=dash disable=SC2154
set -e

if [ "$1" != again ]; then
	b=/bin/busybox
	$b mount -t proc proc /proc
	$b mount -t sysfs sysfs /sys
	$b mount -t devtmpfs dev /dev
	exec </dev/console >/dev/console 2>&1
	for m in /modules/*; do
		[ ! -e "$m" ] || $b insmod "$m"
	done
	$b mount -t virtiofs -o ro vmrig-root /lower
	$b mount -t tmpfs -o size=60% written /written
	$b mkdir /written/upper /written/work
	$b mount -t overlay -o lowerdir=/lower,upperdir=/written/upper,workdir=/written/work root /new
	for d in proc sys dev; do
		$b mount -o move "/$d" "/new/$d"
	done
	# /run is the machine's own.
	$b mount -t tmpfs run /new/run
	$b mkdir /new/run/vmrig /new/run/vmrig-init
	$b mount -t virtiofs vmrig-job /new/run/vmrig
	$b cp $b /init /new/run/vmrig-init/
	exec $b switch_root /new /run/vmrig-init/busybox sh /run/vmrig-init/init again
fi

b=/run/vmrig-init/busybox
modules=/lib/modules/$($b uname -r)
# What a booted machine has.
while read -r kind target; do
	$b mkdir -p "$target"
	$b mount -t "$kind" "$kind" "$target"
done <<LIST
cgroup2 /sys/fs/cgroup
bpf /sys/fs/bpf
devpts /dev/pts
tmpfs /dev/shm
debugfs /sys/kernel/debug
tracefs /sys/kernel/tracing
LIST
# The kernel asks modprobe for all other modules, as on any machine.
$b mkdir -p "$modules"
$b mount -o bind "$VMRIG_MODULES$modules" "$modules"
# Opening it loads the module; elsewhere systemd or udev makes it.
$b mkdir -p /dev/net
[ -e /dev/net/tun ] || $b mknod -m 666 /dev/net/tun c 10 200
$b ip link set lo up

cd /run/vmrig
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
status=0
/bin/sh ./job </dev/null >>stdout 2>>stderr || status=$?
echo $status >status.tmp
$b mv status.tmp status
$b sync
$b poweroff -f
