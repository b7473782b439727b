// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/executor"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/vm"
)

// substrate is where the samples are taken; down ends what it keeps running
// between them.
func (c *choices) substrate() (s executor.Substrate, down func() error, err error) {
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
	default:
		return nil, nil, &usageError{fmt.Sprintf("no substrate %q: there are netns and vm", c.where)}
	}
}
