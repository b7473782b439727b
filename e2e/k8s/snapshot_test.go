// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// look prints, line by line, what a node is made of as far as a CNI plugin may
// change it: files with their modes and hashes, mounts, devices, qdiscs, filters
// and rules, on the node and in the namespace of each pod. Times and counters are
// left out.
const look = `
cd /
files() {
	# containerd keeps books of every pod that it ran, also of those that are gone.
	find "$@" -xdev -path /run/containerd -prune -o -printf '%p %y %m %u %l\n'
	find "$@" -xdev -path /run/containerd -prune -o -type f -exec sha256sum {} +
}
net() {
	# A device's neighbour in another namespace has a number that is the
	# namespace's place in a list; the address of a router is learned.
	ip -d -o link | sed 's/ link-netns[^ ]* [^ ]*//'
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
awk '{print $2, $3}' /proc/mounts
net
for ns in /run/netns/*; do
	nsenter --net="$ns" bash -c "$(declare -f net); net" | sed "s,^,$ns: ,"
done
`

// snapshot is the sorted lines of look.
func snapshot(ctx context.Context, n *cluster.Node) ([]string, error) {
	out, err := n.Exec(ctx, "bash", "-c", look)
	lines := strings.Split(out, "\n")
	slices.Sort(lines)
	return lines, err
}

// benign says which differences an uninstall may leave, and why.
func benign(line string) bool {
	for _, part := range []string{
		// Directories that the kubelet made for the agent to mount; an agent
		// cannot remove what is mounted in its own container. They are empty.
		"/var/lib/podweir d 755", "/run/podweir d 755",
	} {
		if strings.HasPrefix(line, part) {
			return true
		}
	}
	return false
}

// unchanged compares a node with what it was before.
func unchanged(t *testing.T, n *cluster.Node, before []string) {
	t.Helper()
	after, err := snapshot(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range before {
		if !slices.Contains(after, line) && !benign(line) {
			t.Errorf("%s: is missing after the uninstall: %s", n.Name, line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) && !benign(line) {
			t.Errorf("%s: is left by the uninstall: %s", n.Name, line)
		}
	}
	keepFact(t, "lines of "+n.Name+" compared", "%d", len(before))
}
