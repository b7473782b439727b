// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// longest is how long a load lasts, and who takes one waits for it.
const longest = 20 * time.Second

// take counts from the first byte on.
func take(network, duration string) error {
	length, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	var c net.Conn
	if network == "udp" {
		c, err = net.ListenUDP(network, &net.UDPAddr{Port: 7001})
	} else {
		var l net.Listener
		if l, err = net.Listen(network, ":7001"); err == nil {
			c, err = l.Accept()
		}
	}
	if err != nil {
		return err
	}
	sum, buf := 0, make([]byte, 64<<10)
	for err = c.SetReadDeadline(time.Now().Add(longest)); err == nil; {
		var n int
		if n, err = c.Read(buf); sum == 0 && err == nil {
			err = c.SetReadDeadline(time.Now().Add(length))
		}
		sum += n
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	_, err = fmt.Println(sum)
	return err
}

// send ends when nobody takes its connection any more.
func send(network, address, rate string) error {
	bits, err := strconv.ParseFloat(rate, 64)
	if err != nil {
		return err
	}
	end := time.Now().Add(longest)
	c, err := net.Dial(network, address+":7001")
	for ; err != nil && time.Now().Before(end); c, err = net.Dial(network, address+":7001") {
		<-time.After(50 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	buf := make([]byte, 1300)
	cost := time.Duration(float64(len(buf)) * 8 * float64(time.Second) / bits)
	for next := time.Now(); next.Before(end); next = next.Add(cost) {
		if early := time.Until(next); early > time.Millisecond {
			<-time.After(early)
		}
		// Until somebody listens datagrams are refused.
		if _, err := c.Write(buf); err != nil && network == "tcp" {
			return err
		}
	}
	return nil
}
