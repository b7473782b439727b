// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package aws makes the Amazon VPC CNI and its Network Policy Agent the primary
// CNI of a cluster: AWS's own programs, installed by AWS's own chart, without AWS.
// What stands in for EC2 is package imds, and for the policy controller of EKS
// [VPC.Apply].
package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/podweir/podweir/e2e/aws/imds"
	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// Conflist is where aws-node puts its network, each time it starts.
const Conflist = "/etc/cni/net.d/10-aws.conflist"

// timeout is for one change of the DaemonSet, on a busy machine.
const timeout = 3 * time.Minute

// Network is what the VPC has beyond nodes with one network interface and IPv4.
type Network struct {
	// IPv6 gives pods IPv6 addresses alone. Nodes have both, and the control plane and
	// Services keep IPv4.
	IPv6 bool
	// TwoCards gives each of two nodes a second network interface, on a network card of its
	// own.
	TwoCards bool
}

// VPC is AWS's VPC CNI in a cluster.
type VPC struct {
	Network
	cluster *cluster.Cluster
	// made is the directory that e2e/aws/setup.sh printed, files the one of
	// e2e/aws.
	made, files string
	metadata    map[string]*http.Server
}

// Build runs e2e/aws/setup.sh. It returns what [New] needs, and the archives of
// AWS's images, which the nodes of a cluster without another primary CNI import.
// here is the directory of e2e/aws.
func Build(ctx context.Context, here string) (made string, images []string, err error) {
	printed, err := cluster.Setup(ctx, here, 1)
	if err != nil {
		return "", nil, err
	}
	made = printed[0]
	images, err = filepath.Glob(filepath.Join(made, "*.tar"))
	if err == nil && len(images) != 4 {
		err = fmt.Errorf("%s has %d images, want 4", made, len(images))
	}
	return made, images, err
}

// New does what EC2 and EKS do for the nodes of a cluster without a primary CNI:
// metadata, routes to pods, and the resources of the policy controller.
func New(ctx context.Context, c *cluster.Cluster, here, made string, network Network) (*VPC, error) {
	v := &VPC{Network: network, cluster: c, made: made, files: here, metadata: map[string]*http.Server{}}
	errs := []error{v.connect(ctx)}
	for _, n := range c.Members {
		errs = append(errs, v.serve(ctx, n))
	}
	_, err := c.Kubectl(ctx, "", "apply", "-f", filepath.Join(here, "crds.yaml"))
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// Close ends what is served to the nodes.
func (v *VPC) Close() error {
	var errs []error
	for _, server := range v.metadata {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

// Booted puts back what a restart took from a node.
func (v *VPC) Booted(ctx context.Context, n *cluster.Node) error {
	return errors.Join(v.connect(ctx), v.serve(ctx, n))
}

// serve starts the metadata service of a node, in its network namespace.
func (v *VPC) serve(ctx context.Context, n *cluster.Node) error {
	if old := v.metadata[n.Name]; old != nil {
		_ = old.Close()
	}
	address, _, err := net.SplitHostPort(imds.Listen)
	if err != nil {
		return err
	}
	if _, err := n.Exec(ctx, "ip", "address", "replace", address+"/32", "dev", "lo"); err != nil {
		return err
	}
	var devices []net.Interface
	var listener net.Listener
	err = n.Netns().Do(func() (err error) {
		if devices, err = net.Interfaces(); err != nil {
			return err
		}
		// The socket stays in the namespace, whoever accepts.
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", imds.Listen)
		return err
	})
	if err != nil {
		return err
	}
	instance, err := v.describe(n, devices)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: instance.Handler(), ReadHeaderTimeout: 5 * time.Second}
	v.metadata[n.Name] = server
	go func() { _ = server.Serve(listener) }() // until Close
	return nil
}

// describe says what EC2 would of a node.
func (v *VPC) describe(n *cluster.Node, devices []net.Interface) (*imds.Instance, error) {
	subnet, err := n.IP.Prefix(24)
	if err != nil {
		return nil, err
	}
	pods, err := netip.ParsePrefix(n.PodCIDR)
	if err != nil {
		return nil, err
	}
	eth0 := imds.Interface{Address: n.IP, Subnet: subnet, Pods: pods}
	if v.IPv6 {
		eth0.IPv6, eth0.PodsIPv6 = ipv6(n)
	}
	i := &imds.Instance{
		Name: n.Name,
		// What is not in it gets the node's address.
		VPC: []netip.Prefix{
			netip.MustParsePrefix(v.cluster.PodCIDR()), subnet, netip.MustParsePrefix(v.cluster.ServiceCIDR()), secondSubnets,
		},
		VPCIPv6: vpcIPv6,
	}
	i.Interfaces = []imds.Interface{eth0}
	if v.TwoCards {
		i.Interfaces = append(i.Interfaces, eth1(n))
	}
	for card := range i.Interfaces {
		at := slices.IndexFunc(devices, func(d net.Interface) bool { return d.Name == fmt.Sprintf("eth%d", card) })
		if at < 0 {
			return nil, fmt.Errorf("%s has no eth%d", n.Name, card)
		}
		i.Interfaces[card].MAC = devices[at].HardwareAddr.String()
	}
	return i, nil
}

// Install brings AWS's chart to these values. Where something changes, the
// DaemonSet is rolled.
func (v *VPC) Install(ctx context.Context, set ...string) error {
	args := []string{
		"upgrade", "--install", "aws-vpc-cni", filepath.Join(v.made, "chart"), "-n", "kube-system",
		"-f", filepath.Join(v.files, "values.yaml"),
	}
	for _, s := range set {
		args = append(args, "--set-string", s)
	}
	_, err := v.cluster.Helm(ctx, args...)
	return err
}

// Uninstall removes the chart's release.
func (v *VPC) Uninstall(ctx context.Context) error {
	_, err := v.cluster.Helm(ctx, "uninstall", "aws-vpc-cni", "-n", "kube-system", "--wait")
	return err
}

// Ready looks whether every aws-node is that of the last change and whether it and
// the Network Policy Agent are ready.
func (v *VPC) Ready(ctx context.Context) error {
	var set struct {
		Metadata struct{ Generation int }
		Status   struct {
			ObservedGeneration                                              int
			DesiredNumberScheduled, UpdatedNumberScheduled, NumberAvailable int
		}
	}
	if err := v.cluster.Get(ctx, &set, "-n", "kube-system", "daemonset/aws-node"); err != nil {
		return err
	}
	s := set.Status
	if want := len(v.cluster.Members); s.ObservedGeneration != set.Metadata.Generation ||
		s.DesiredNumberScheduled != want || s.UpdatedNumberScheduled != want || s.NumberAvailable != want {
		return fmt.Errorf("aws-node: %+v, want %d of generation %d", s, want, set.Metadata.Generation)
	}
	for _, n := range v.cluster.Members {
		if err := v.agentReady(ctx, n); err != nil {
			return fmt.Errorf("ipamd or the Network Policy Agent of %s: %w", n.Name, err)
		}
	}
	return nil
}

// Wait waits until it is ready.
func (v *VPC) Wait(ctx context.Context) error { return cluster.Eventually(ctx, timeout, v.Ready) }

// Kill kills a program of AWS's on a node: controller, the Network Policy Agent, or
// aws-k8s-agent, ipamd, with which aws-node ends. The kubelet starts it again.
func (v *VPC) Kill(ctx context.Context, n *cluster.Node, program string) error {
	_, err := n.Exec(ctx, "pkill", "-KILL", "-x", program)
	return err
}

// agentReady says whether ipamd and the Network Policy Agent of a node answer. The
// latter's container has no probe in AWS's chart.
func (v *VPC) agentReady(ctx context.Context, n *cluster.Node) error {
	const ask = `exec 3<>/dev/tcp/127.0.0.1/61679 4<>/dev/tcp/127.0.0.1/8163 &&
		printf 'GET /readyz HTTP/1.0\r\n\r\n' >&4 && grep -qx ok <&4`
	_, err := n.Exec(ctx, "bash", "-c", ask)
	return err
}
