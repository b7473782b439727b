// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cri

import (
	"context"
	"fmt"
	"sync"
)

// Runtime is a client of the container runtime whose socket is looked for
// until it is there: pods that are shaped need none.
type Runtime struct {
	// Socket is looked for below the node's root directory if it is empty.
	Root, Socket string

	mu     sync.Mutex
	client *Client
}

// Open returns the client.
func (r *Runtime) Open() (*Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil {
		return r.client, nil
	}
	socket := r.Socket
	var err error
	if socket == "" {
		if socket, err = FindSocket(r.Root); err != nil {
			return nil, fmt.Errorf("--cri-socket: %w", err)
		}
	}
	r.client, err = Open(socket)
	return r.client, err
}

// Find is [Client.Find].
func (r *Runtime) Find(ctx context.Context, runtimeUID string) (Sandbox, error) {
	c, err := r.Open()
	if err != nil {
		return Sandbox{}, err
	}
	return c.Find(ctx, runtimeUID)
}

// Knows is [Client.Knows].
func (r *Runtime) Knows(ctx context.Context, id string) (bool, error) {
	c, err := r.Open()
	if err != nil {
		return false, err
	}
	return c.Knows(ctx, id)
}

// Close closes the client if there is one.
func (r *Runtime) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil {
		return nil
	}
	return r.client.Close()
}
