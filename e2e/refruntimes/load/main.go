// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command load runs in a sandbox of gVisor and sends and receives what the test asks for,
// which counts what arrives in the sandbox's own network stack:
//
//	tcp 7001: receives until the end of the stream, then answers how many bytes
//	tcp 7002: sends for two seconds
//	udp 7003: receives
//	udp 7004: sends to who asks for two seconds
//	tcp 7005: answers how many bytes came to udp 7003 since the last question
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"sync/atomic"
	"time"
)

const (
	sendFor = 2 * time.Second
	// packet is the payload of a datagram, in bytes. One each 100 us is 80 Mbit/s.
	packet = 1000
	each   = 100 * time.Microsecond
	tick   = 2 * time.Millisecond
)

func main() {
	var got atomic.Int64
	serve("7001", func(c net.Conn) error {
		n, err := io.Copy(io.Discard, c)
		fmt.Fprintln(c, n)
		return err
	})
	serve("7002", func(c net.Conn) error {
		block := make([]byte, 64<<10)
		for end := time.Now().Add(sendFor); time.Now().Before(end); {
			if _, err := c.Write(block); err != nil {
				return err
			}
		}
		return nil
	})
	listen("7003", func(_ net.PacketConn, n int, _ net.Addr) { got.Add(int64(n)) })
	listen("7004", func(c net.PacketConn, _ int, from net.Addr) {
		pace := time.NewTicker(tick)
		defer pace.Stop()
		sent := 0
		for start := time.Now(); time.Since(start) < sendFor; <-pace.C {
			// A machine that is busy makes up for it.
			for due := int(time.Since(start) / each); sent < due; sent++ {
				_, _ = c.WriteTo(make([]byte, packet), from) // a full queue refuses it
			}
		}
	})
	serve("7005", func(c net.Conn) error {
		_, err := fmt.Fprintln(c, got.Swap(0))
		return err
	})
	fmt.Println("ready")
	select {}
}

// serve gives each connection to a port to a function.
func serve(port string, answer func(net.Conn) error) {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go func() {
				defer func() { _ = c.Close() }()
				if err := answer(c); err != nil {
					log.Print(err)
				}
			}()
		}
	}()
}

// listen gives each datagram to a port to a function.
func listen(port string, take func(c net.PacketConn, bytes int, from net.Addr)) {
	c, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFrom(buffer)
			if err != nil {
				log.Fatal(err)
			}
			take(c, n, from)
		}
	}()
}
