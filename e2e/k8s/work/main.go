// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command work is the one program in the pods of e2e/k8s. What loads them are sockets of the
// tests, in their network namespaces.
//
//	work pause   wait for SIGTERM; also the sandbox's program
//	work serve   send back what connections to port 7000 send
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		go serve()
	} else if len(os.Args) != 2 || os.Args[1] != "pause" {
		fmt.Fprintln(os.Stderr, "usage: work pause|serve")
		os.Exit(1)
	}
	pause()
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
