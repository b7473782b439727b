// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package snapshot records what a node is made of, as far as a CNI plugin may
// change it, and compares two such records.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/step"
)

// look prints, line by line: files with their modes and hashes (pins are files),
// mounts, devices, qdiscs, filters and rules, on the node and in the namespace
// of each pod. Times and counters are left out.
const look = `
cd /
files() {
	# containerd keeps books of every pod that it ran, also of those that are gone.
	find "$@" -xdev -path /run/containerd -prune -o -printf '%p %y %m %u %l\n'
	find "$@" -xdev -path /run/containerd -prune -o -type f -exec sha256sum {} +
}
net() {
	# A device's neighbour in another namespace has a number that is the
	# namespace's place in a list; the address of a router is learned; bridges
	# have timers that run; the kernel gives a virtual device without a qlen 1000
	# with its first qdisc, and without a qdisc it means nothing.
	ip -d -o link | sed -E 's/ link-netns[^ ]* [^ ]*//; s/_timer +[0-9.]+/_timer/g; s/ *( qlen [0-9]+)?\\/\\/'
	# A new address has no local route until it is known to be nobody else's, a
	# second or two after the device came up.
	for i in $(seq 50); do
		[ -z "$(ip -o addr show tentative -dadfailed)" ] && break
		sleep 0.1
	done
	ip -o addr | sed 's/ *valid_lft.*//'
	ip route show table all
	tc qdisc show
	for dev in $(ls /sys/class/net); do
		tc filter show dev "$dev" root 2>/dev/null | sed "s/^/$dev root /"
		tc filter show dev "$dev" ingress 2>/dev/null | sed "s/^/$dev ingress /"
		tc filter show dev "$dev" egress 2>/dev/null | sed "s/^/$dev egress /"
	done
	nft --stateless list ruleset
}
files /etc/cni /opt/cni /var/lib/podweir /var/lib/cni /sys/fs/bpf /run /usr /etc/containerd 2>/dev/null
awk '$2 !~ "^/run/containerd/" {print $2, $3}' /proc/mounts
net
for ns in /run/netns/*; do
	nsenter --net="$ns" bash -c "$(declare -f net); net" | sed "s,^,$ns: ,"
done
`

// Snapshot is the sorted lines that describe a node.
type Snapshot []string

// Take looks at a node.
func Take(ctx context.Context, n *cluster.Node) (_ Snapshot, err error) {
	defer step.End(&err)
	out := step.Get(n.Exec(ctx, "bash", "-c", look))
	lines := Snapshot(strings.Split(out, "\n"))
	attached, err := programs(n)
	lines = append(lines, attached...)
	slices.Sort(lines)
	return lines, err
}

// programs are those at the TCX hooks of the node and its pods, which tc does
// not show. A program that is not pinned, in a filter or at such a hook ends
// with the process that loaded it.
func programs(n *cluster.Node) (_ []string, err error) {
	defer step.End(&err)
	files := step.Get(filepath.Glob(n.Path("/run/netns/*")))
	var lines []string
	look := func(where string, ns cluster.Netns) error {
		found, err := Hooks(ns)
		for _, h := range found {
			for _, p := range h.Programs {
				lines = append(lines, fmt.Sprintf("%s: %s tcx %s %s", where, h.Device, h.Way, p))
			}
		}
		return err
	}
	errs := []error{look("node", n.Netns())}
	for _, file := range files {
		errs = append(errs, look("/run/netns/"+filepath.Base(file), cluster.NetnsAt(file)))
	}
	return lines, errors.Join(errs...)
}

// Hook is a TCX hook of a device.
type Hook struct {
	// Way is ingress or egress, as the device sees it.
	Device, Way string
	// Programs are the names and tags of those that are attached, the first to run first.
	Programs []string
	// Revision counts the changes of the hook.
	Revision uint64
}

// Hooks are those of a network namespace that have programs; there are none on a kernel
// without TCX.
func Hooks(ns cluster.Netns) (found []Hook, err error) {
	err = ns.Do(func() error {
		devices, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, dev := range devices {
			for way, attach := range map[string]ebpf.AttachType{"ingress": ebpf.AttachTCXIngress, "egress": ebpf.AttachTCXEgress} {
				has, err := link.QueryPrograms(link.QueryOptions{Target: dev.Index, Attach: attach})
				if errors.Is(err, ebpf.ErrNotSupported) {
					return nil
				}
				if err != nil {
					return fmt.Errorf("%s: programs of %s: %w", ns.Path(), dev.Name, err)
				}
				if len(has.Programs) == 0 {
					continue
				}
				h := Hook{Device: dev.Name, Way: way, Revision: has.Revision}
				for _, p := range has.Programs {
					h.Programs = append(h.Programs, name(p.ID))
				}
				found = append(found, h)
			}
		}
		return nil
	})
	return found, err
}

// name is the name and the tag of a program.
func name(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	if err != nil {
		return err.Error()
	}
	return info.Name + " " + info.Tag
}

// benign are the differences that an uninstall may leave.
var benign = []string{
	// Directories that the kubelet made for the agent to mount; an agent
	// cannot remove what is mounted in its own container. They are empty.
	"/var/lib/podweir d 755", "/run/podweir d 755",
}

// Difference is a line that only one of two snapshots has.
type Difference struct {
	Line string
	// Missing lines were there before; the others are new.
	Missing bool
}

func (d Difference) String() string {
	if d.Missing {
		return "is missing: " + d.Line
	}
	return "is left: " + d.Line
}

// Compare are the differences between a node before podweir came and after it
// went; accept says which others are none.
func Compare(before, after Snapshot, accept func(line string) bool) []Difference {
	var out []Difference
	for _, d := range []struct {
		lines, others Snapshot
		missing       bool
	}{{before, after, true}, {after, before, false}} {
		for _, line := range d.lines {
			if _, has := slices.BinarySearch(d.others, line); has || isBenign(line) || accept != nil && accept(line) {
				continue
			}
			out = append(out, Difference{line, d.missing})
		}
	}
	return out
}

func isBenign(line string) bool {
	return slices.ContainsFunc(benign, func(part string) bool { return strings.HasPrefix(line, part) })
}
