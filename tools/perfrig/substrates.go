// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/executor"
	"github.com/podweir/podweir/tools/perfrig/k8s"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/vm"
)

// substrate is where the samples are taken; down ends what it keeps running
// between them.
func (c *choices) substrate(ctx context.Context) (s executor.Substrate, down func() error, err error) {
	switch c.where {
	case "netns":
		here := netns.New(".")
		here.Niceness = lab.Niceness
		return here, func() error { return nil }, nil
	case vm.Name:
		machines, err := vm.New(".", c.kernel)
		if err != nil {
			return nil, nil, &usageError{err.Error()}
		}
		machines.Niceness = lab.Niceness
		return machines, machines.Close, nil
	case "k8s":
		cluster, err := k8s.Start(ctx, ".", lab.Niceness)
		if err != nil {
			return nil, nil, err
		}
		return cluster, cluster.Close, nil
	default:
		return nil, nil, &usageError{fmt.Sprintf("no substrate %q: there are netns, vm and k8s", c.where)}
	}
}
