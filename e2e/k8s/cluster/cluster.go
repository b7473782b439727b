// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package cluster runs a real Kubernetes cluster on one machine, without a
// registry of images: etcd and the control plane as processes, and nodes with
// containerd and the kubelet in Docker containers of their own network. Several may
// run at the same time: everything outside of a node has the cluster's number in its
// name or address.
//
// It needs root, a running dockerd and what e2e/k8s/setup.sh makes.
package cluster

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/testcontainers/testcontainers-go"

	"github.com/podweir/podweir/e2e/step"
)

// Options say what a cluster is made of.
type Options struct {
	// Dir takes logs, keys and configuration; it must be empty.
	Dir string
	// Components is the directory of programs, and NodeImage the Docker image
	// of a node, as setup.sh prints them.
	Components, NodeImage string
	// NodeFiles is the directory of entry.sh.
	NodeFiles string
	// Images are archives that every node imports.
	Images []string
	// Nodes are the names of the nodes.
	Nodes []string
	// NoCNI leaves the nodes without a primary CNI: [Start] returns when they
	// have joined, and they become ready when a CNI is installed.
	NoCNI bool
	// Helm3 has [Cluster.Helm] run Helm 3 instead of Helm 4. It may change while the
	// cluster runs.
	Helm3 bool
}

// Cluster is a running cluster.
type Cluster struct {
	Options
	// Nodes by the order of their names.
	Members []*Node

	// name is of this cluster alone, on this machine; so are these addresses.
	name              string
	gateway, loopback netip.Addr

	network   *testcontainers.DockerNetwork
	api       netip.AddrPort
	processes []*process // in the order of their starts
	closed    sync.Once
}

// Start returns when every node is ready, with ptp as the primary CNI unless
// [Options.NoCNI] is set, or with an error; then nothing is left of it but the
// files in Dir.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Options: o}
	if err := step.Run(func() { c.start(ctx) }); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) {
	step.OK(prepareDocker())
	step.OK(c.makeNetwork(ctx))
	c.startControlPlane(ctx)
	for i, name := range c.Nodes {
		step.Say(step.Run(func() { c.Members = append(c.Members, c.startNode(ctx, name, i)) }), "node %s", name)
	}
	for _, n := range c.Members {
		step.Say(n.join(ctx), "node %s", n.Name)
	}
	if c.NoCNI {
		return
	}
	for _, n := range c.Members {
		step.OK(n.WriteFile(ConflistFile, Conflist(n.Ptp())))
	}
	step.OK(c.Connect(ctx))
	step.Get(c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s"))
}

// API is where the API server listens, for nodes and pods alike.
func (c *Cluster) API() netip.AddrPort { return c.api }

// Close removes the nodes, and with them every pod, and ends the control plane.
// It may be called more than once and from a signal handler.
func (c *Cluster) Close() error {
	var errs []error
	c.closed.Do(func() {
		// Not the caller's context: that one may be why we are here.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, n := range c.Members {
			errs = append(errs, n.saveLogs())
		}
		// The API server before etcd: without that it clings to its port.
		for _, p := range slices.Backward(c.processes) {
			errs = append(errs, p.kill())
		}
		errs = append(errs, removeLabelled(ctx, func(cluster string) bool { return cluster == c.name }))
	})
	return errors.Join(errs...)
}

// path is a file of this run.
func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// write makes a file of this run.
func (c *Cluster) write(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(c.path(name), []byte(content), 0o600)
}
