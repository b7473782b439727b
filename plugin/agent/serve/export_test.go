// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve

import (
	"net"
	"time"
)

// SetPatience changes how much time clients have for a request and for an answer; it is
// called before [Server.Run].
func (s *Server) SetPatience(d time.Duration) {
	for _, p := range []*port{s.metrics, s.health} {
		p.http.ReadHeaderTimeout, p.http.ReadTimeout, p.http.WriteTimeout = d, d, d
	}
}

// NodeAddr is the address that was taken for the node's state, nil if none was.
func (s *Server) NodeAddr() net.Addr {
	if s.node == nil {
		return nil
	}
	return s.node.listener.Addr()
}
