// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

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

// Departure times in the manner of Cilium's bandwidth manager: every packet gets
// a time to leave, one after the other at the cap, which fq obeys; what would
// wait for more than the horizon is dropped. There is no burst and no band.
const (
	// edtHorizon is that of Cilium's bandwidth manager, in ns (2 s).
	edtHorizon = 2_000_000_000
	// edtShift: the time of a byte is kept in 1/1024 ns.
	edtShift = 10
)

// Fields of struct __sk_buff (linux/bpf.h).
const (
	skbTstamp  = 152
	skbWireLen = 160
)

// Verdicts of a classifier with direct action.
const (
	edtNext = -1
	edtDrop = 2
)

// departures are the program and its map.
type departures struct {
	prog *ebpf.Program
	last *ebpf.Map
}

func (d *departures) close() error { return errors.Join(d.prog.Close(), d.last.Close()) }

// newDepartures loads the program for a cap in bits per second. Two processors
// may give two packets one time, as Cilium's may.
func newDepartures(bitsPerSec uint64) (*departures, error) {
	last, err := ebpf.NewMap(&ebpf.MapSpec{Name: "perfrig_edt", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("map of departure times: %w", err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "perfrig_edt", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: edtProgram(last.FD(), 8_000_000_000<<edtShift/bitsPerSec),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("program of departure times: %w", err), last.Close())
	}
	return &departures{prog, last}, nil
}

// edtProgram: R6 is the packet, R7 the time at which it came, R8 where the last
// departure is kept, R9 the packet's own.
func edtProgram(last int, nanosPerByte uint64) asm.Instructions {
	const next, started, drop = "next", "started", "drop"
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, last),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, next),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
		// departure = last departure + time of this packet
		asm.LoadMem(asm.R9, asm.R6, skbWireLen, asm.Word),
		asm.LoadImm(asm.R1, int64(nanosPerByte), asm.DWord),
		asm.Mul.Reg(asm.R9, asm.R1),
		asm.RSh.Imm(asm.R9, edtShift),
		asm.LoadMem(asm.R1, asm.R8, 0, asm.DWord),
		asm.Add.Reg(asm.R9, asm.R1),
		// A packet that may leave now begins the count anew.
		asm.JGT.Reg(asm.R9, asm.R7, started),
		asm.StoreMem(asm.R8, 0, asm.R7, asm.DWord),
		asm.Ja.Label(next),
		asm.Mov.Reg(asm.R1, asm.R9).WithSymbol(started),
		asm.Sub.Reg(asm.R1, asm.R7),
		asm.LoadImm(asm.R2, edtHorizon, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, drop),
		asm.StoreMem(asm.R8, 0, asm.R9, asm.DWord),
		asm.StoreMem(asm.R6, skbTstamp, asm.R9, asm.DWord),
		asm.Mov.Imm(asm.R0, edtNext).WithSymbol(next),
		asm.Return(),
		asm.Mov.Imm(asm.R0, edtDrop).WithSymbol(drop),
		asm.Return(),
	}
}

// attachDepartures makes a device send at departure times: fq as its root, and
// the program at its egress hook, in front of it. Both go with the device; the
// program needs no longer be open.
func attachDepartures(ns *lab.Netns, ifName string, bitsPerSec uint64) (err error) {
	d, err := newDepartures(bitsPerSec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return ns.Do(func() error {
		dev, err := net.InterfaceByName(ifName)
		if err != nil {
			return fmt.Errorf("device %s: %w", ifName, err)
		}
		index := dev.Index
		fq := netlink.NewFq(netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)})
		// Its limits must not be met before the horizon.
		fq.PacketLimit, fq.FlowPacketLimit = edtPackets, edtPackets
		if err := netlink.QdiscAdd(fq); err != nil {
			return fmt.Errorf("fq on %s: %w", ifName, err)
		}
		clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}
		if err := netlink.QdiscAdd(clsact); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("clsact on %s: %w", ifName, err)
		}
		err = netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
			},
			Fd: d.prog.FD(), Name: "perfrig_edt", DirectAction: true,
		})
		if err != nil {
			return fmt.Errorf("program on %s: %w", ifName, err)
		}
		return nil
	})
}

// edtPackets is more than two seconds of 10 Mbit/s in full packets hold, and
// all that a sender's window does above.
const edtPackets = 100_000
