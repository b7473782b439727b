// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package rivals limits a pod in the way that other software does: into the pod as
// Cilium's bandwidth manager, whose other direction needs fq, and in both as Calico's QoS
// controls. They are doubles: each copies the
// effect of named functions, without the agents around them, so that podweir can be
// measured beside them on one machine. What a double makes goes with its device.
package rivals

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/step"
)

//go:generate go tool bpf2go -go-package rivals -tags linux -target bpfel -cc clang-19 -no-global-types -cflags "-O2 -mcpu=v3 -std=gnu11 -nostdinc -Wall -Wextra -Werror -Wshadow -Wimplicit-int-conversion -Wenum-conversion -Wimplicit-fallthrough" police police.bpf.c -- -I../../bpf/headers
//go:generate rm police_bpfel.go

//go:embed police_bpfel.o
var object []byte

// CiliumIngress polices what a device sends, in bits per second, as Cilium's
// bandwidth manager does with what a pod receives: a bucket of one second of the
// rate, without a queue. The device is the host side of the pod. The double copies
// the effect of accept in bpf/lib/token_bucket.h:17-53 of Cilium 1.20.2, which
// local_delivery (bpf/lib/local_delivery.h:161) calls for every packet that goes
// to a pod and does not come from the host. What it copies includes that
// remainders of a division are lost, that two processors may charge one bucket at a
// time, and that a packet whose processor read the clock before the other's finds
// the bucket full, because the time since then is a huge number without a sign.
func CiliumIngress(ns *lab.Netns, ifName string, bitsPerSec uint64) (err error) {
	defer step.End(&err)
	objects := step.Get(load(bitsPerSec / 8))
	// They go with the device, and need not be open.
	defer objects.Close()
	return ns.Do(func() error {
		dev, err := net.InterfaceByName(ifName)
		if err != nil {
			return fmt.Errorf("device %s: %w", ifName, err)
		}
		clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: dev.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}
		if err := netlink.QdiscAdd(clsact); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("clsact on %s: %w", ifName, err)
		}
		// The egress hook is in front of the device's qdisc.
		err = netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: dev.Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
			},
			Fd: objects.Programs[program].FD(), Name: program, DirectAction: true,
		})
		if err != nil {
			return fmt.Errorf("program on %s: %w", ifName, err)
		}
		return nil
	})
}

const program = "rival_police"

func load(bytesPerSec uint64) (_ *ebpf.Collection, err error) {
	defer step.End(&err)
	spec := step.Get(ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object)))
	step.OK(spec.Variables["bytes_per_sec"].Set(bytesPerSec))
	return ebpf.NewCollection(spec)
}
