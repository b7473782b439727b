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
	"syscall"

	"github.com/moby/moby/api/pkg/stdcopy"
	dockernet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"
)

// label is on everything that we make in Docker, with the process that made it.
const label = "io.podweir.e2e"

func ownPID() string { return strconv.Itoa(os.Getpid()) }

func labels() map[string]string { return map[string]string{label: ownPID()} }

// prepareDocker removes what processes left that were killed. The library's own
// way to that is a container from a registry, which there need not be.
func prepareDocker(ctx context.Context) error {
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return err
	}
	log.SetDefault(log.NewNoopLogger())
	return removeLabelled(ctx, func(pid string) bool {
		n, err := strconv.Atoi(pid)
		return err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
	})
}

// makeNetwork takes the first free /24 of 172.30.0.0/16.
func (c *Cluster) makeNetwork(ctx context.Context) error {
	var err error
	for i := range 255 {
		gateway := netip.AddrFrom4([4]byte{172, 30, byte((os.Getpid() + i) % 255), 1})
		c.network, err = network.New(ctx, network.WithLabels(labels()), network.WithIPAM(&dockernet.IPAM{
			Config: []dockernet.IPAMConfig{{Subnet: netip.PrefixFrom(gateway, 24).Masked(), Gateway: gateway}},
		}))
		if err == nil {
			c.gateway = gateway
			return nil
		}
		if !strings.Contains(err.Error(), "overlaps") {
			break
		}
	}
	return err
}

// removeLabelled removes the containers, their volumes and the networks of
// processes.
func removeLabelled(ctx context.Context, of func(pid string) bool) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
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
