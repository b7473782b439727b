// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// xdpEntries is the length of the rings, a power of two.
const xdpEntries = 512

// xdpSender is an AF_XDP socket (linux/if_xdp.h). In copy mode the kernel copies a
// frame when it sends it, so that all of them can be the same piece of memory.
type xdpSender struct {
	fd             int
	frameBytes     uint32
	send, complete xdpRing
}

// xdpRing is memory that is shared with the kernel. The indices count on and wrap.
type xdpRing struct {
	producer, consumer *uint32
	descs              unsafe.Pointer
}

// openXDP opens an AF_XDP socket in copy mode: its frames go to the driver, past
// every qdisc of the device and every program on its hooks. No XDP program is
// needed, since none is received. It needs CAP_NET_RAW.
func (f *flooder) openXDP() error {
	if err := f.frame(); err != nil {
		return err
	}
	device := f.dest.(*unix.SockaddrLinklayer).Ifindex
	var err error
	if f.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("AF_XDP socket: %w", err)
	}
	s := &xdpSender{fd: f.fd, frameBytes: uint32(len(f.packet))}
	if err := s.share(f.packet); err != nil {
		return err
	}
	if err := s.rings(); err != nil {
		return err
	}
	if err := unix.Bind(f.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(device)}); err != nil {
		return fmt.Errorf("bind AF_XDP in copy mode to device %d: %w", device, err)
	}
	f.offer = s.offer
	return nil
}

// share gives the kernel one chunk of memory with the frame in it.
func (s *xdpSender) share(frame []byte) error {
	chunk, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	copy(chunk, frame)
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&chunk[0]))), Len: uint64(len(chunk)), Size: uint32(len(chunk))}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&reg)), unsafe.Sizeof(reg))
	if err := unix.SetsockoptString(s.fd, unix.SOL_XDP, unix.XDP_UMEM_REG, string(raw)); err != nil {
		return fmt.Errorf("set XDP_UMEM_REG: %w", err)
	}
	return nil
}

// rings makes the rings. One to receive into is requested by bind(2), and not used.
func (s *xdpSender) rings() error {
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_TX_RING} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_XDP, ring, xdpEntries); err != nil {
			return fmt.Errorf("make AF_XDP ring %d: %w", ring, err)
		}
	}
	var at unix.XDPMmapOffsets
	size := uint32(unsafe.Sizeof(at))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return fmt.Errorf("get XDP_MMAP_OFFSETS: %w", errno)
	}
	const addressBytes = 8
	err := s.send.open(s.fd, unix.XDP_PGOFF_TX_RING, &at.Tx, unsafe.Sizeof(unix.XDPDesc{}))
	return errors.Join(err, s.complete.open(s.fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, &at.Cr, addressBytes))
}

func (r *xdpRing) open(fd int, offset int64, at *unix.XDPRingOffset, entryBytes uintptr) error {
	length := int(at.Desc) + xdpEntries*int(entryBytes)
	memory, err := unix.Mmap(fd, offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map an AF_XDP ring: %w", err)
	}
	r.descs = unsafe.Pointer(&memory[at.Desc])
	r.producer = (*uint32)(unsafe.Pointer(&memory[at.Producer]))
	r.consumer = (*uint32)(unsafe.Pointer(&memory[at.Consumer]))
	return nil
}

// offer puts a frame on the ring and has the kernel send it. One for which there is
// no place is refused; what the kernel does not send now it sends at the next call.
func (s *xdpSender) offer() error {
	atomic.StoreUint32(s.complete.consumer, atomic.LoadUint32(s.complete.producer))
	next := atomic.LoadUint32(s.send.producer)
	full := next-atomic.LoadUint32(s.send.consumer) == xdpEntries
	if !full {
		unsafe.Slice((*unix.XDPDesc)(s.send.descs), xdpEntries)[next%xdpEntries] = unix.XDPDesc{Len: s.frameBytes}
		atomic.StoreUint32(s.send.producer, next+1)
	}
	err := unix.Sendto(s.fd, nil, unix.MSG_DONTWAIT, nil)
	if full {
		return errors.Join(unix.ENOBUFS, err)
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}
