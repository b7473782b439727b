// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command work is the one program in the pods of e2e/k8s. What loads them are sockets of the
// tests, in their network namespaces.
//
//	work pause   wait for SIGTERM; also the sandbox's program
//	work serve   send back what connections to port 7000 send
//
// Into and out of gVisor's sandbox, which has a network stack of its own, it is the load, too:
//
//	work take tcp|udp DURATION        print how many bytes come to port 7001 in a time
//	work send tcp|udp ADDRESS BITS    send to one that takes, at so many bits per second
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "serve":
		go serve()
		pause()
	case len(args) == 1 && args[0] == "pause":
		pause()
	case len(args) == 3 && args[0] == "take":
		err = take(args[1], args[2])
	case len(args) == 4 && args[0] == "send":
		err = send(args[1], args[2], args[3])
	default:
		err = errors.New("usage: work pause|serve|take tcp|udp DURATION|send tcp|udp ADDRESS BITS")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		os.Exit(1)
	}
}

// pause waits for a signal, and takes in what orphans leave behind, as the
// first process of a pod should.
func pause() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range c {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

func serve() {
	l, err := net.Listen("tcp", ":7000")
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}
	fmt.Fprintln(os.Stderr, "work:", err)
	os.Exit(1)
}
