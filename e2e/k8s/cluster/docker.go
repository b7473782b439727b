// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	dockernet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/podweir/podweir/e2e/step"
)

// label is on everything that we make in Docker, with the name of its cluster: the
// process that made it, and the number.
const label = "io.podweir.e2e"

func clusterName(number byte) string { return fmt.Sprintf("%d-%d", os.Getpid(), number) }

func labels(cluster string) map[string]string { return map[string]string{label: cluster} }

// prepareDocker removes, once, what processes left that were killed. The library's own
// way to that is a container from a registry, which there need not be.
var prepareDocker = sync.OnceValue(func() error {
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return err
	}
	log.SetDefault(log.NewNoopLogger())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return removeLabelled(ctx, func(cluster string) bool {
		pid, _, _ := strings.Cut(cluster, "-")
		n, err := strconv.Atoi(pid)
		return err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
	})
})

// makeNetwork takes the first free /24 of 172.30.0.0/16. Docker gives none of them twice,
// so that its number, the third byte, is the cluster's alone on this machine.
func (c *Cluster) makeNetwork(ctx context.Context) error {
	var err error
	for i := range 255 {
		number := byte((os.Getpid() + i) % 255)
		gateway := netip.AddrFrom4([4]byte{172, 30, number, 1})
		c.network, err = network.New(ctx, network.WithLabels(labels(clusterName(number))), network.WithIPAM(&dockernet.IPAM{
			Config: []dockernet.IPAMConfig{{Subnet: netip.PrefixFrom(gateway, 24).Masked(), Gateway: gateway}},
		}))
		if err == nil {
			c.name, c.gateway = clusterName(number), gateway
			c.loopback = netip.AddrFrom4([4]byte{127, 30, number, 1})
			return nil
		}
		if !strings.Contains(err.Error(), "overlaps") {
			break
		}
	}
	return err
}

// removeLabelled removes the containers, their volumes and the networks of
// clusters.
func removeLabelled(ctx context.Context, of func(cluster string) bool) (err error) {
	defer step.End(&err)
	docker := step.Get(testcontainers.NewDockerClientWithOpts(ctx))
	defer func() { _ = docker.Close() }()
	ours := make(client.Filters).Add("label", label)
	containers, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	errs := []error{err}
	for _, c := range containers.Items {
		if of(c.Labels[label]) {
			_, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
			errs = append(errs, err)
		}
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	errs = append(errs, err)
	for _, n := range networks.Items {
		if of(n.Labels[label]) {
			_, err := docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Exec runs a program on the node and returns what it wrote to stdout, without
// the space around it.
func (n *Node) Exec(ctx context.Context, args ...string) (string, error) {
	status, output, err := n.container.Exec(ctx, args)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	var out, errs bytes.Buffer
	_, err = stdcopy.StdCopy(&out, &errs, output)
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d: %s", status, strings.TrimSpace(errs.String()))
	}
	if err != nil {
		err = fmt.Errorf("%s on %s: %w", strings.Join(args, " "), n.Name, err)
	}
	return strings.TrimSpace(out.String()), err
}
