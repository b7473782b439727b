#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Boots a kernel with the host's files, runs one command there and powers off. The command
# may write wherever its user may: that goes to memory and is lost. The exit status is the
# command's, or 124 if the machine did not end in time or ended without one: its console
# follows. 125 is trouble of this script. What the kernel complains of is a line on stderr.
# setup.sh has to have run.
#
# run.sh -k KERNEL [-cpus N] [-mem MIB] [-timeout TIME] [-accel ACCEL] -- COMMAND...
# run.sh -k KERNEL -about                 the kernel's release, and what runs its processors
#
#   KERNEL   6.1, 6.12 or newest
#   ACCEL    kvm, tcg (qemu's translator: some 20 times slower, and the same on every host)
#            or auto: KVM if a trial boot under it succeeds. The default is VMRIG_ACCEL.
set -euo pipefail

self=$(realpath "$0")
cache=${XDG_CACHE_HOME:-/var/cache}/podweir-vmrig
kernel=6.12 cpus=1 mem=1024 timeout=10m accel=${VMRIG_ACCEL:-auto} about='' qemu=''
fail() {
	echo "vmrig: $*" >&2
	exit 125
}
while [ $# -gt 0 ]; do
	case $1 in
	-k | -cpus | -mem | -timeout | -accel)
		name=${1#-}
		declare "${name/#k/kernel}=${2:?$1}"
		shift
		;;
	-about) about=1 ;;
	--) shift && break ;;
	*) fail "unknown option $1" ;;
	esac
	shift
done
dir=$cache/kernels/$kernel
[ -e "$dir/initramfs" ] || fail "kernel $kernel is not there yet: tools/vmrig/setup.sh fetches 6.1, 6.12 and newest"
release=$(ls "$dir/lib/modules")

# works has a kernel boot under KVM for at most 20 s, and keeps the answer until the host
# boots or the kernel is another. Whoever asks meanwhile waits. A machine that boots there
# needs some 2 s; on some hosts that are virtual machines themselves it hangs.
works() {
	local now answer why
	# Without the first test a regular file would be made there.
	[ -c /dev/kvm ] && (: <>/dev/kvm) 2>/dev/null || return 1
	now="$(cat /proc/sys/kernel/random/boot_id) $release"
	exec {lock}>>"$cache/kvm-$kernel"
	flock "$lock"
	answer=$(sed -n "s/^$now //p" "$cache/kvm-$kernel")
	if [ -z "$answer" ]; then
		answer=works
		if ! why=$("$self" -k "$kernel" -accel kvm -mem 512 -timeout 20s -- true 2>&1 {lock}>&-); then
			answer="hangs"
			echo "vmrig: kernel $kernel does not boot under KVM on this host, so it is emulated: $(head -n 1 <<<"$why")" >&2
		fi
		echo "$now $answer" >"$cache/kvm-$kernel"
	fi
	exec {lock}>&-
	[ "$answer" = works ]
}
case $accel in
kvm | tcg) ;;
auto) if works; then accel=kvm; else accel=tcg; fi ;;
*) fail "accelerator \"$accel\" is none of auto, kvm, tcg" ;;
esac
if [ -n "$about" ]; then
	echo "$release $accel"
	exit
fi
[ $# -gt 0 ] || fail "no command to run"

mkdir -p "$cache/jobs"
job=$(mktemp -d "$cache/jobs/$kernel-XXXXXX")
# shellcheck disable=SC2046 # the numbers of processes
trap '{ kill $(jobs -p) || true; wait; } 2>/dev/null; rm -rf "$job"' EXIT
trap 'exit 130' INT TERM
: >"$job/stdout"
: >"$job/stderr"

# What init.sh runs. A word of a shell's, whatever is in it.
quoted() { printf " '%s'" "${1//\'/\'\\\'\'}"; }
{
	printf 'cd%s && exec env -i' "$(quoted "$PWD")"
	while IFS= read -r -d '' word; do quoted "$word"; done < <(env -0)
	for word; do quoted "$word"; done
	echo
} >"$job/job"

# host runs a cached program by the loader that it was built for, for as long as the machine
# may take. It dies with this script; the terminal's signals are this script's.
host() {
	local lib=$cache/host/usr/lib/x86_64-linux-gnu dies=(setpriv --pdeathsig KILL)
	QEMU_MODULE_DIR=$lib/qemu exec "${dies[@]}" timeout -s KILL "$timeout" "${dies[@]}" \
		"$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$cache/host/usr/$1" "${@:2}"
}

# share SOCKET DIR OPTION... serves a directory. No sandbox: the guest is ours, and the
# share of the root is read-only.
share() {
	host libexec/virtiofsd --socket-path="$1" --shared-dir="$2" --sandbox=none --seccomp=none \
		--inode-file-handles=never --no-announce-submounts --log-level=error "${@:3}"
}
# The host's files do not change while a test runs on them, so the guest may keep what it
# has read; the job's do.
share "$job/root.sock" / --readonly --cache=always &>"$job/root.log" &
share "$job/job.sock" "$job" --cache=never &>"$job/job.log" &
for name in root job; do
	until [ -S "$job/$name.sock" ]; do
		[ "$(jobs -pr | wc -l)" = 2 ] || fail "virtiofsd: $(cat "$job"/*.log)"
		sleep 0.02
	done
done

if [ "$accel" = kvm ]; then
	processor=(-accel kvm -cpu host)
else
	# Smaller caches of translated code are flushed while Go programs run. Wide vectors and
	# five levels of page tables, which newer processors have, take the translator more time
	# than they save. rdrand seeds the kernel.
	# shellcheck disable=SC2054 # it is one argument
	processor=(-accel tcg,thread=multi,tb-size=256 -cpu Nehalem,+rdrand)
fi
# Reboot at once on a panic, so that qemu ends (-no-reboot); no mitigations and no address
# randomisation, which emulation only makes slow; seeds from the machine's processor, because
# little else happens at boot; no look at whether the timer interrupt arrives, which it does
# not in time when the host is busy, and the kernel panics of that.
append="console=ttyS0 loglevel=5 panic=-1 mitigations=off nokaslr no_timer_check random.trust_cpu=on net.ifnames=0"
append+=" hostname=vm-${kernel//./-} VMRIG_MODULES=$dir"
host bin/qemu-system-x86_64 \
	-L "$cache/host/usr/share/qemu" -L "$cache/host/usr/share/seabios" \
	-machine q35,memory-backend=mem,graphics=off,usb=off,vmport=off \
	-smp "$cpus" -m "${mem}M" -object "memory-backend-memfd,id=mem,share=on,size=${mem}M" \
	-nodefaults -no-user-config -display none -no-reboot -serial "file:$job/console" \
	-chardev "socket,id=root,path=$job/root.sock" -device vhost-user-fs-pci,chardev=root,queue-size=1024,tag=vmrig-root \
	-chardev "socket,id=job,path=$job/job.sock" -device vhost-user-fs-pci,chardev=job,tag=vmrig-job \
	-kernel "$dir/vmlinuz" -initrd "$dir/initramfs" -append "$append" "${processor[@]}" &>"$job/qemu" &
qemu=$!
tail -c +1 -f -s 0.1 --pid="$qemu" "$job/stdout" &
tails=($!)
tail -c +1 -f -s 0.1 --pid="$qemu" "$job/stderr" >&2 &
tails+=($!)
ended=0
wait "$qemu" 2>/dev/null || ended=$?
wait "${tails[@]}" || true

if [ ! -e "$job/status" ]; then
	reason="it ended without the command's status"
	[ ! -s "$job/qemu" ] || reason="qemu: $(head -n 1 "$job/qemu")"
	[ "$ended" != 137 ] || reason="killed after $SECONDS s, of $timeout that it had"
	echo "vmrig: kernel $kernel: $reason; its console:" >&2
	tr -d '\r' <"$job/console" >&2 || true
	exit 124
fi
tr -d '\r' <"$job/console" | awk -v kernel="$kernel" -f "${self%/*}/complaints.awk" >&2
exit "$(cat "$job/status")"
