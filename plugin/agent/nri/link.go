// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package nri

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
)

// link is one connection to the runtime: it calls us on one half of it, and we have
// called it on the other. The library's own plugin side is not used, because it
// waits without end for a runtime that answers halfway.
type link struct {
	server *ttrpc.Server
	client *ttrpc.Client
	mux    multiplex.Mux
	// closed is closed when the runtime is gone.
	closed chan struct{}
	served sync.WaitGroup
}

// open registers on a connection and returns when the runtime has configured us and
// told what runs.
func open(ctx context.Context, conn net.Conn, s *service) (l *link, err error) {
	l = &link{mux: multiplex.Multiplex(conn), closed: make(chan struct{})}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	listener, err := l.mux.Listen(multiplex.PluginServiceConn)
	if err != nil {
		return nil, err
	}
	if l.server, err = ttrpc.NewServer(); err != nil {
		return nil, err
	}
	api.RegisterPluginService(l.server, s)
	serving := context.WithoutCancel(ctx)
	l.served.Go(func() { _ = l.server.Serve(serving, listener) }) // it ends with the connection
	calls, err := l.mux.Open(multiplex.RuntimeServiceConn)
	if err != nil {
		return nil, err
	}
	l.client = ttrpc.NewClient(calls, ttrpc.WithOnClose(sync.OnceFunc(func() { close(l.closed) })))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err = api.NewRuntimeClient(l.client).RegisterPlugin(ctx, &api.RegisterPluginRequest{
		PluginName: pluginName, PluginIdx: pluginIndex,
	})
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		done chan struct{}
		what string
	}{{s.configured, "configure the plugin"}, {s.synced, "tell what runs"}} {
		select {
		case <-step.done:
		case <-l.closed:
			return nil, fmt.Errorf("the runtime ended the connection before it did %s", step.what)
		case <-ctx.Done():
			return nil, fmt.Errorf("the runtime did not %s within %v: %w", step.what, startTimeout, ctx.Err())
		}
	}
	return l, nil
}

func (l *link) close() {
	if l.client != nil {
		_ = l.client.Close()
	}
	if l.server != nil {
		_ = l.server.Close()
	}
	_ = l.mux.Close()
	l.served.Wait()
}
