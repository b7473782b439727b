// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"sync"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// every is the time between two looks at a cluster's memory.
const every = time.Second

// meter has what clusters take of the machine's memory, in bytes.
type meter struct {
	mu sync.Mutex
	// now is of each cluster that runs, most the largest sum of them.
	now  map[*cluster.Cluster]uint64
	most uint64
}

// watch looks at a cluster's memory until the returned function is called, which returns
// the most that was seen, in MiB, or 0 if nothing was. A look that fails is left out: nodes
// are restarted.
func (m *meter) watch(c *cluster.Cluster) (stop func() uint64) {
	end, most := make(chan struct{}), make(chan uint64)
	go func() {
		var peak uint64
		for {
			if now, err := c.Memory(); err == nil {
				peak = max(peak, now)
				m.seen(c, now)
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

func (m *meter) seen(c *cluster.Cluster, bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now[c] = bytes
	var sum uint64
	for _, b := range m.now {
		sum += b
	}
	m.most = max(m.most, sum)
}

func (m *meter) forget(c *cluster.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.now, c)
}
