// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"encoding/binary"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
