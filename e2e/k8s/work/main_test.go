// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestStopEndsTheLoadsOfOneAddress has a pod with two interfaces under load.
func TestStopEndsTheLoadsOfOneAddress(t *testing.T) {
	s := &server{conns: map[*net.TCPConn]bool{}}
	load := func(address string) (far, near *net.TCPConn) {
		l, err := net.Listen("tcp4", address+":0")
		must.OK(t, err)
		defer func() { _ = l.Close() }()
		to, err := net.Dial("tcp4", l.Addr().String())
		must.OK(t, err)
		from, err := l.Accept()
		must.OK(t, err)
		far, near = to.(*net.TCPConn), from.(*net.TCPConn)
		t.Cleanup(func() { _, _ = far.Close(), near.Close() })
		s.hold(near, true)
		return far, near
	}
	eth0, _ := load("127.0.0.1")
	net1, near := load("127.0.0.2")
	s.stop(here(near))
	_ = net1.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := net1.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the load of the address that is stopped goes on: %v", err)
	}
	_ = eth0.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := eth0.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the load of the other address has ended: %v", err)
	}
}
