// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rivals

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
)

// skbWireLen is a field of struct __sk_buff (linux/bpf.h).
const skbWireLen = 160

// Verdicts of a classifier with direct action.
const (
	next = -1
	drop = 2
)

const nanosPerSec = 1_000_000_000

// CiliumIngress polices what a device sends, in bits per second, as Cilium's
// bandwidth manager does with what a pod receives: a bucket of one second of the
// rate, without a queue. The device is the host side of the pod. The double copies
// the effect of accept in bpf/lib/token_bucket.h:17-53 of Cilium 1.20.2, which
// local_delivery (bpf/lib/local_delivery.h:161) calls for every packet that goes
// to a pod and does not come from the host. What it copies includes that
// remainders of a division are lost, that two processors may charge one bucket at a
// time, and that a packet whose processor read the clock before the other's finds
// the bucket full, because the time since then is a huge number without a sign.
func CiliumIngress(ns *lab.Netns, ifName string, bitsPerSec uint64) error {
	return attach(ns, ifName, "rival_police", func(state int) asm.Instructions { return policer(state, bitsPerSec/8) })
}

// program is a classifier with its state: two numbers of 64 bits, zero at first.
type program struct {
	prog  *ebpf.Program
	state *ebpf.Map
}

func (p *program) close() error { return errors.Join(p.prog.Close(), p.state.Close()) }

func load(name string, instructions func(state int) asm.Instructions) (*program, error) {
	state, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: instructions(state.FD()),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("program %s: %w", name, err), state.Close())
	}
	return &program{prog, state}, nil
}

// attach puts a program at the egress hook of a device, in front of its qdisc. Both
// go with the device; the program need no longer be open.
func attach(ns *lab.Netns, ifName, name string, instructions func(state int) asm.Instructions) (err error) {
	p, err := load(name, instructions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
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
		err = netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: dev.Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
			},
			Fd: p.prog.FD(), Name: name, DirectAction: true,
		})
		if err != nil {
			return fmt.Errorf("program on %s: %w", ifName, err)
		}
		return nil
	})
}

// withState has the packet in R6, the time in R7 and the state in R8, and goes to a
// label if there is no state.
func withState(state int, without string) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, state),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, without),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
	}
}

// policer: the state is the bucket's bytes and when they were counted. R9 is what is
// in the bucket.
func policer(state int, bytesPerSec uint64) asm.Instructions {
	const pass, filled, keep = "pass", "filled", "keep"
	return append(withState(state, pass),
		asm.LoadMem(asm.R9, asm.R8, 0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R8, 8, asm.DWord),
		// bucket += time since then × rate, at most a second of it
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Sub.Reg(asm.R2, asm.R1),
		asm.LoadImm(asm.R3, int64(bytesPerSec), asm.DWord),
		asm.Mul.Reg(asm.R2, asm.R3),
		asm.LoadImm(asm.R1, nanosPerSec, asm.DWord),
		asm.Div.Reg(asm.R2, asm.R1),
		asm.Add.Reg(asm.R9, asm.R2),
		asm.JLE.Reg(asm.R9, asm.R3, filled),
		asm.Mov.Reg(asm.R9, asm.R3),
		asm.LoadMem(asm.R1, asm.R6, skbWireLen, asm.Word).WithSymbol(filled),
		asm.Mov.Imm(asm.R0, drop),
		asm.JLT.Reg(asm.R9, asm.R1, keep),
		asm.Sub.Reg(asm.R9, asm.R1),
		asm.Mov.Imm(asm.R0, next),
		asm.StoreMem(asm.R8, 0, asm.R9, asm.DWord).WithSymbol(keep),
		asm.StoreMem(asm.R8, 8, asm.R7, asm.DWord),
		asm.Return(),
		asm.Mov.Imm(asm.R0, next).WithSymbol(pass),
		asm.Return(),
	)
}
