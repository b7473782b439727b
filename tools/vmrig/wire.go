// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/podweir/podweir/tools/vmrig/vm"
	"github.com/podweir/podweir/tools/vmrig/wire"
)

// joined runs one command on each of two kernels that a wire joins.
func joined(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("wire", flag.ContinueOnError)
	o, err := machine(flags)
	if err != nil {
		return 0, err
	}
	kernels := flags.String("k", "6.12,6.1", "the kernel of COMMAND and that of the peer")
	peer := flags.String("peer", "", fmt.Sprintf(
		"shell command of the peer; it is ended when COMMAND has ended. COMMAND has the address %v on the wire (%s) and %v on a second one (%s), the peer %v and %v",
		wire.Leader.WireAddr(), wire.WireDevice, wire.Leader.ControlAddr(), wire.ControlDevice,
		wire.Peer.WireAddr(), wire.Peer.ControlAddr()))
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	leader, other, ok := strings.Cut(*kernels, ",")
	if !ok || *peer == "" || flags.NArg() == 0 {
		return 0, errors.New("wire needs two kernels, the peer's command and a command")
	}
	cache, err := vm.OpenCache()
	if err != nil {
		return 0, err
	}
	if o.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	result, err := wire.Run(ctx, cache, wire.Options{
		Kernels: [2]string{leader, other}, Machine: *o,
		Command: flags.Args(), PeerCommand: *peer,
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	for _, line := range result.Complaints {
		fmt.Fprintln(os.Stderr, "vmrig: kernel", line)
	}
	return result.Status, err
}
