// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventBytes is what is read at a time: the kernel fills at most this into one
// message of a notification (NLMSG_GOODSIZE is a page, or 8 KiB at most).
const eventBytes = 8192

// DeviceEvents tells of changes to devices, queues and filters in one network
// namespace. It holds one socket and no thread, and the namespace lives at
// least as long as it is open.
type DeviceEvents struct {
	file *os.File
	path string
	// netns is the cookie of the namespace.
	netns uint64
}

// eventBufs are for what is being read: one for each watch would be most of
// what the agent holds beside hundreds of pods, and nearly all of them wait.
var eventBufs = sync.Pool{New: func() any { return new([eventBytes]byte) }}

// WatchDevices subscribes to the changes in ns from now on.
//
// Needs no privilege beyond entering the namespace.
func WatchDevices(ns *NetNS) (*DeviceEvents, error) {
	const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_TC-1)
	file, err := Subscribe(ns, unix.NETLINK_ROUTE, groups, "device events")
	if err != nil {
		return nil, fmt.Errorf("watch devices in netns %s: %w", ns.path, err)
	}
	e := &DeviceEvents{file: file, path: ns.path}
	raw, err := file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { e.netns = cookie(int(fd)) })
	}
	if err == nil {
		err = calmDown(e.netns, func(n *calm) bool {
			n.watches = append(n.watches, e)
			return len(n.ports) > 0
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch devices in netns %s: %w", ns.path, err), e.Close())
	}
	return e, nil
}

// Next blocks until something changes and returns the indexes of the devices
// that did; none means that events were lost and any may have. It returns the
// context's error when that ends.
func (e *DeviceEvents) Next(ctx context.Context) ([]int, error) {
	_ = e.file.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = e.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		changed, err := e.read()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, unix.ENOBUFS):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("watch devices in netns %s: %w", e.path, err)
		}
		if len(changed) > 0 {
			return changed, nil
		}
	}
}

// read waits for one notification.
func (e *DeviceEvents) read() (changed []int, err error) {
	raw, err := e.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	ended := raw.Read(func(fd uintptr) (done bool) {
		buf := eventBufs.Get().(*[eventBytes]byte)
		defer eventBufs.Put(buf)
		n, readErr := unix.Read(int(fd), buf[:])
		for errors.Is(readErr, unix.EINTR) {
			n, readErr = unix.Read(int(fd), buf[:])
		}
		changed, err = changedDevices(buf[:max(n, 0)]), readErr
		return !errors.Is(readErr, unix.EAGAIN)
	})
	return changed, errors.Join(ended, err)
}

// Close ends the subscription.
func (e *DeviceEvents) Close() error {
	err := calmDown(e.netns, func(n *calm) bool {
		n.watches = slices.DeleteFunc(n.watches, func(other *DeviceEvents) bool { return other == e })
		return false
	})
	return errors.Join(err, e.file.Close())
}

// changedDevices reads the ifindexes out of notifications: struct ifinfomsg and
// struct tcmsg both have theirs four bytes after the netlink header's end.
func changedDevices(b []byte) []int {
	const indexAt = unix.SizeofNlMsghdr + 4
	var changed []int
	for len(b) >= indexAt+4 {
		size := int(Uint32(b))
		if index := int(int32(Uint32(b[indexAt:]))); index > 0 && !slices.Contains(changed, index) {
			changed = append(changed, index)
		}
		if size < indexAt+4 || size >= len(b) {
			break
		}
		b = b[min(nlaRound(size), len(b)):]
	}
	return changed
}

// Subscribe opens a socket of a protocol in ns that gets the notifications of some groups, as
// a mask; name is what the file is called. The error wraps [ErrPermission] or [ErrNoEntry] if a
// capability is missing, and [errors.ErrUnsupported] if the kernel lacks the protocol.
func Subscribe(ns *NetNS, proto int, groups uint32, name string) (*os.File, error) {
	var events *os.File
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		if err != nil {
			return err
		}
		// Not blocking, so that the runtime polls it.
		events = os.NewFile(uintptr(fd), name)
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
	})
	if err != nil && events != nil {
		_ = events.Close()
	}
	return events, subscribeError(err)
}

// subscribeError says which capability is missing, unless that is known.
func subscribeError(err error) error {
	if errors.Is(err, unix.EPERM) && !errors.Is(err, ErrNoEntry) {
		return fmt.Errorf("%w: %w", ErrPermission, err)
	}
	return err
}

// calm is what is quiet in one network namespace.
type calm struct {
	// ports are the sockets whose changes this process ignores, watches are what ignores them.
	ports   []uint32
	watches []*DeviceEvents
}

// quiet is by the cookies of the namespaces.
var quiet = struct {
	sync.Mutex
	in map[uint64]*calm
}{in: make(map[uint64]*calm)}

// Quiet has [DeviceEvents] of this process leave out what the connection changes of queues: who
// does that many times a second knows of it. The kernel leaves it out, so nobody wakes up. Before
// Linux 5.14 it has no effect.
func (c *Conn) Quiet() error {
	return calmDown(c.Cookie(), func(n *calm) bool {
		if slices.Contains(n.ports, c.socket.port) {
			return false
		}
		n.ports = append(n.ports, c.socket.port)
		return true
	})
}

// loud ends Quiet: the port may be another socket's soon.
func (c *Conn) loud() error {
	return calmDown(c.Cookie(), func(n *calm) bool {
		before := len(n.ports)
		n.ports = slices.DeleteFunc(n.ports, func(port uint32) bool { return port == c.socket.port })
		return len(n.ports) != before
	})
}

// calmDown changes what is quiet in a namespace, and if something did, tells the kernel.
func calmDown(netns uint64, change func(*calm) bool) error {
	if netns == 0 {
		return nil
	}
	quiet.Lock()
	defer quiet.Unlock()
	n := quiet.in[netns]
	if n == nil {
		n = &calm{}
		quiet.in[netns] = n
	}
	changed := change(n)
	if len(n.ports) == 0 && len(n.watches) == 0 {
		delete(quiet.in, netns)
	}
	if !changed {
		return nil
	}
	for _, e := range n.watches {
		if err := e.leaveOut(n.ports); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut has the kernel drop the notifications of changes by these sockets.
func (e *DeviceEvents) leaveOut(ports []uint32) error {
	const portAt, whole = uint32(unsafe.Offsetof(unix.NlMsghdr{}.Pid)), 0xffffffff
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt}}
	for _, port := range ports {
		// A filter loads by the network's byte order, netlink has the machine's.
		loaded := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port))
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: loaded},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: whole})
	raw, err := e.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	if err != nil {
		return err
	}
	return failed
}
