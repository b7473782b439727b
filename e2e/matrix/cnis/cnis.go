// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package cnis holds the primary CNIs of the matrix: what each puts into a
// cluster, when it is ready, how it is disturbed and how it goes.
package cnis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/row"
)

// CNI is a primary CNI. A row has one of its own, so it may keep what it needs
// between two calls. Every method obeys the end of its context.
type CNI interface {
	// Install puts it into a cluster without a CNI. It may return before it is
	// ready.
	Install(ctx context.Context, c *cluster.Cluster) error
	// Ready looks once and returns what is missing.
	Ready(ctx context.Context, c *cluster.Cluster) error
	// Booted puts back what a restart of the node took and nobody else puts
	// back. It is called after each restart of a node.
	Booted(ctx context.Context, n *cluster.Node) error
	// Conflist is the file on each node that the CNI wrote.
	Conflist() string
	// Uninstall removes what Install put there. No pod runs by then.
	Uninstall(ctx context.Context, c *cluster.Cluster) error
}

// Agent is implemented by CNIs with a process on each node.
type Agent interface {
	// KillAgent kills the process with SIGKILL and returns when it is back.
	KillAgent(ctx context.Context, c *cluster.Cluster, n *cluster.Node) error
}

// Changes is implemented by CNIs that change while podweir and pods run.
type Changes interface {
	// Changes are made one after the other; there are none if the CNI of the row stays
	// as it is.
	Changes() []Change
}

// Change is another release of the CNI, or other settings.
type Change struct {
	What string
	// Do returns when the CNI is ready again.
	Do func(ctx context.Context) error
	// Denies says that the CNI denies meanwhile, too, what its policy denies.
	Denies bool
}

// Policy is implemented by CNIs with a policy engine.
type Policy interface {
	// Restrict makes a policy: only these pods, of those that stay, may connect to the
	// server. It may return before the policy is enforced. A second call replaces the
	// first.
	Restrict(ctx context.Context, c *cluster.Cluster, server *workload.Pod, friends ...*workload.Pod) error
	// Lift removes the policy.
	Lift(ctx context.Context, c *cluster.Cluster, server *workload.Pod) error
}

// Admission is implemented by CNIs under which a new pod talks to nobody.
type Admission interface {
	// Admit lets everybody talk to a pod, and the pod to everybody. It may return
	// before they can.
	Admit(ctx context.Context, p *workload.Pod) error
}

// Images is implemented by CNIs with images, which are made before the cluster starts.
// Rows with the same images share a cluster, and nodes are restarted between two: such a
// CNI leaves nothing on a node but what goes with that, its files of CNIs and the custom
// resource definitions.
type Images interface {
	// Images returns archives that every node imports. here is the directory
	// e2e/matrix.
	Images(ctx context.Context, here string) ([]string, error)
}

// Logs is implemented by CNIs whose logs are not those of pods.
type Logs interface {
	// Logs are the last words of the CNI on a node.
	Logs(ctx context.Context, n *cluster.Node) string
}

// Batch is implemented by CNIs that have addresses for few pods at a time.
type Batch interface {
	// Batch is how many pods may start while as many go and as many have just gone.
	Batch() int
}

// Shaper is implemented by CNIs that enforce the standard annotations by themselves.
type Shaper interface {
	// Shaper is the name by which podweir knows it.
	Shaper() string
	// OwnLimits are the rates, in bits per second, to which the CNI itself holds what
	// enters and what leaves a pod; 0 is none.
	OwnLimits(ctx context.Context, p *workload.Pod) (in, out uint64, err error)
}

// TwoInterfaces is implemented by CNIs that give a pod a second interface.
type TwoInterfaces interface {
	// Second is the interface's name, and the annotations with which a pod gets it.
	Second() (name string, annotations map[string]string)
	// Outbound says whether the interface is for connections that the pod makes.
	Outbound() bool
}

// Unchanged is implemented by CNIs which change their own files while pods come
// and go.
type Unchanged interface {
	// Own says whether a line of a snapshot is of such a file.
	Own(line string) bool
}

// lines are parts of the lines of a CNI's own state in a snapshot.
type lines []string

// lastAddress is host-local's book of the last address.
const lastAddress = "last_reserved_ip."

// Own implements [Unchanged].
func (l lines) Own(line string) bool {
	return slices.ContainsFunc(l, func(part string) bool { return strings.Contains(line, part) })
}

// members make the primary CNIs by their names in matrix.yaml.
var members = map[string]func(*row.Row) CNI{
	"aws":         newVPC,
	"bridge":      newBridge,
	"calico":      newCalico,
	"cilium":      newCilium,
	"flannel":     newFlannel,
	"ipvlan":      newLayered,
	"macvlan":     newLayered,
	"kube-router": newKubeRouter,
	"ptp":         newPtp,
}

// New makes the primary CNI of a row.
func New(r *row.Row) (CNI, error) {
	member, ok := members[r.CNI]
	if !ok {
		return nil, fmt.Errorf("row %s: cni %q is not accepted, want one of %q", r.Name, r.CNI, Names())
	}
	return member(r), nil
}

// Names are the names of all primary CNIs.
func Names() []string {
	var names []string
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
