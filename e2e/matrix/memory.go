// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// every is the time between two looks at the cluster's memory.
const every = time.Second

// peakMemory looks at the cluster's memory until the returned function is called,
// which returns the most that was seen, in MiB, or 0 if nothing was. A look that
// fails is left out: nodes are restarted.
func peakMemory(c *cluster.Cluster) (stop func() uint64) {
	end, most := make(chan struct{}), make(chan uint64)
	go func() {
		var peak uint64
		for {
			if now, err := c.Memory(); err == nil {
				peak = max(peak, now)
			}
			select {
			case <-end:
				most <- peak >> 20
				return
			case <-time.After(every):
			}
		}
	}()
	return func() uint64 {
		close(end)
		return <-most
	}
}
