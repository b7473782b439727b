// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command program has a module linked in.
package main

import "golang.org/x/sys/unix"

func main() { _ = unix.Getpid() }
