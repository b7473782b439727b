// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// datagram is the payload of one, in bytes; it fits into an MTU of 1400.
const datagram = 1300

// sink takes datagrams on the server's port, so that nobody answers them with
// an error.
func sink() {
	c, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return
	}
	buf := make([]byte, 64<<10)
	for {
		if _, _, err := c.ReadFrom(buf); err != nil {
			return
		}
	}
}

// flood sends datagrams to the host and port of a TCP address for a time, or
// until the connection is closed.
func flood(to net.Addr, bits uint64, length time.Duration, until *net.TCPConn) error {
	c, err := net.Dial("udp", to.String())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, datagram)
	cost := time.Duration(datagram * 8 * float64(time.Second) / float64(bits))
	end := time.Now().Add(length)
	next := time.Now()
	for now := next; now.Before(end); now = time.Now() {
		// A closed connection refuses deadlines.
		if until.SetWriteDeadline(end) != nil {
			return nil
		}
		// Time that a full queue took is not made up for.
		if next.Before(now) {
			next = now
		}
		for next.Before(now.Add(time.Millisecond)) {
			// Nobody may listen there: an answer that says so is no reason to stop.
			_, _ = c.Write(buf)
			next = next.Add(cost)
		}
		<-time.After(time.Until(next))
	}
	return nil
}

// untilClosed waits for the server to close, which it does when it is told to
// stop: an error, as for every load that is stopped.
func untilClosed(c *net.TCPConn, length time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(length)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	return err
}

// ask measures the time of answers.
func ask(address string, length time.Duration) error {
	return request(address, "ask 0 0\n", func(c *net.TCPConn) error {
		if err := c.SetDeadline(time.Now().Add(length + 5*time.Second)); err != nil {
			return err
		}
		var took []time.Duration
		question := make([]byte, 64)
		for next, end := time.Now(), time.Now().Add(length); next.Before(end); next = next.Add(5 * time.Millisecond) {
			<-time.After(time.Until(next))
			began := time.Now()
			if _, err := c.Write(question); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, question); err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		_, err := fmt.Println(took[len(took)/2].Microseconds(), took[len(took)*99/100].Microseconds(), took[len(took)-1].Microseconds())
		return err
	})
}
