// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLacks(t *testing.T) {
	const net, sys = 1 << unix.CAP_NET_ADMIN, 1 << unix.CAP_SYS_ADMIN
	for _, c := range []struct {
		effective uint64
		names     []string
	}{
		{net | sys, nil},
		{net | sys | 1<<unix.CAP_SYS_PTRACE, nil},
		{sys, []string{"CAP_NET_ADMIN"}},
		{net, []string{"CAP_SYS_ADMIN"}},
		{1 << unix.CAP_BPF, []string{"CAP_NET_ADMIN", "CAP_SYS_ADMIN"}},
	} {
		err := lacks(c.effective)
		if (err != nil) != (len(c.names) > 0) {
			t.Errorf("lacks(%#x) = %v, want %v", c.effective, err, c.names)
		}
		for _, name := range []string{"CAP_NET_ADMIN", "CAP_SYS_ADMIN"} {
			said, want := strings.Contains(fmt.Sprint(err), name), strings.Contains(fmt.Sprint(c.names), name)
			if said != want {
				t.Errorf("lacks(%#x) = %v, want %v", c.effective, err, c.names)
			}
		}
	}
}
