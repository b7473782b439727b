// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"net"
	"os"
	"strings"
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

func TestParseReceived(t *testing.T) {
	const head = "Inter-|   Receive    |  Transmit\n face |bytes    packets|bytes    packets\n"
	got, err := parseReceived(strings.NewReader(head + "    lo: 1000 1 1000 1\n  eth0: 200 2 5 1\nnet1:30 2 5 1\n"))
	if err != nil || got != 230 {
		t.Errorf("parseReceived() = %d, %v, want 230", got, err)
	}
	if _, err := parseReceived(strings.NewReader(head + "eth0: many\n")); err == nil {
		t.Error("parseReceived() of a line without a number = nil, want an error")
	}
}
