// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package testutil

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// netnsDir is where ip(8) looks for names.
const netnsDir = "/run/netns"

// NetNS is a network namespace of a test, with its loopback up.
type NetNS struct {
	*rtnl.NetNS
	// Name is what `ip -n` takes.
	Name string
	// Handle is a netlink socket in the namespace.
	Handle *hostif.Handle
	// pairs is how many VethPair made from here.
	pairs int
}

// NewNetNS makes a network namespace with a name and removes it when the test
// ends.
func NewNetNS(tb testing.TB) *NetNS {
	tb.Helper()
	RequireRoot(tb)
	scratch := must.Get(rtnl.NewScratchNetNS())(tb)
	name := "pwtest-" + rand.Text()[:12]
	path := filepath.Join(netnsDir, name)
	must.OK(tb, os.MkdirAll(netnsDir, 0o755))
	must.OK(tb, os.WriteFile(path, nil, 0o444))
	tb.Cleanup(func() {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		if err := os.Remove(path); err != nil {
			tb.Errorf("remove netns: %v", err)
		}
	})
	src := fmt.Sprintf("/proc/self/fd/%d", scratch.FD())
	if err := unix.Mount(src, path, "none", unix.MS_BIND, ""); err != nil {
		tb.Fatalf("mount netns on %s: %v", path, err)
	}
	must.OK(tb, scratch.Close())
	ns := must.Get(rtnl.OpenNetNS(path))(tb)
	tb.Cleanup(func() { _ = ns.Close() })
	h := must.Get(hostif.NewHandle(ns))(tb)
	tb.Cleanup(h.Close)
	n := &NetNS{NetNS: ns, Name: name, Handle: h}
	n.Up(tb, "lo")
	return n
}

// Interface returns a device of the namespace.
func (n *NetNS) Interface(tb testing.TB, name string) hostif.Interface {
	tb.Helper()
	return must.Get(n.Handle.InterfaceByName(name))(tb)
}

// Up brings a device up.
func (n *NetNS) Up(tb testing.TB, name string) {
	tb.Helper()
	i := n.Interface(tb, name)
	n.netlink(tb, func(h *netlink.Handle) error {
		return h.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: i.Index}})
	})
}

// AddAddr gives a device an address, such as 10.1.0.1/24 or fd00::1/64, at
// once valid.
func (n *NetNS) AddAddr(tb testing.TB, name, cidr string) {
	tb.Helper()
	i := n.Interface(tb, name)
	ip, ipnet, err := net.ParseCIDR(cidr)
	must.OK(tb, err)
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: ipnet.Mask}}
	if ip.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD
	}
	n.netlink(tb, func(h *netlink.Handle) error {
		return h.AddrAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: i.Index}}, addr)
	})
}

// operState is what the kernel says of a device's carrier (RFC 2863).
func (n *NetNS) operState(tb testing.TB, name string) (state netlink.LinkOperState) {
	tb.Helper()
	n.netlink(tb, func(h *netlink.Handle) error {
		dev, err := h.LinkByName(name)
		if err == nil {
			state = dev.Attrs().OperState
		}
		return err
	})
	return state
}

func (n *NetNS) netlink(tb testing.TB, f func(*netlink.Handle) error) {
	tb.Helper()
	h := must.Get(netlink.NewHandleAt(netns.NsHandle(n.FD()), unix.NETLINK_ROUTE))(tb)
	defer h.Close()
	if err := f(h); err != nil {
		tb.Fatalf("in netns %s: %v", n.Name, err)
	}
}

// Command returns a command that runs in the namespace, by ip(8).
func (n *NetNS) Command(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	return exec.CommandContext(tb.Context(), "ip", append([]string{"netns", "exec", n.Name, name}, args...)...)
}

// Run runs a command in the namespace, fails the test if it fails, and returns
// what it wrote to stdout.
func (n *NetNS) Run(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The child is in the namespace of the thread that starts it. ip(8) makes a mount namespace, too.
	if err := n.Do(cmd.Run); err != nil {
		tb.Fatalf("%s %v in netns %s: %v\n%s%s", name, args, n.Name, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// End is one end of a pair: a device name in a namespace, and its address if
// it is to have one.
type End struct {
	NetNS *NetNS
	Name  string
	// CIDRs are addresses with prefix length.
	CIDRs []string
}

// carrierDeadline bounds the wait for a carrier: the kernel looks at such events
// at least once in a second (linkwatch_schedule_work() in
// net/core/link_watch.c), a machine that stands still later.
const carrierDeadline = 30 * time.Second

// VethPair makes a veth pair with its ends in two namespaces, up and with
// their addresses, and a queue length of 1000 packets as the kernel gives it.
// It returns when the kernel has seen both ends' carrier: that happens in the
// background, and until then an end that was up first has no queue and drops
// what is sent. The ends know each other as neighbours.
func VethPair(tb testing.TB, a, b End) (hostif.Interface, hostif.Interface) {
	tb.Helper()
	attrs := netlink.NewLinkAttrs()
	a.NetNS.pairs++
	// Of ends with the same number, as in two new namespaces, older kernels see the second
	// carrier a second later (linkwatch_urgent_event() in net/core/link_watch.c).
	attrs.Name, attrs.Index = a.Name, 1000+a.NetNS.pairs
	veth := netlink.NewVeth(attrs)
	veth.PeerName = b.Name
	veth.PeerNamespace = netlink.NsFd(b.NetNS.FD())
	a.NetNS.netlink(tb, func(h *netlink.Handle) error { return h.LinkAdd(veth) })
	bringUp(tb, a, b)
	for _, e := range []End{a, b} {
		Eventually(tb, carrierDeadline, e.Name+" has a carrier", func() bool {
			return e.NetNS.operState(tb, e.Name) == netlink.OperUp
		})
	}
	introduce(tb, a, b)
	return a.NetNS.Interface(tb, a.Name), b.NetNS.Interface(tb, b.Name)
}

// bringUp gives ends their addresses and sets them up.
func bringUp(tb testing.TB, ends ...End) {
	tb.Helper()
	for _, e := range ends {
		for _, c := range e.CIDRs {
			e.NetNS.AddAddr(tb, e.Name, c)
		}
		e.NetNS.Up(tb, e.Name)
	}
}

// introduce tells two ends the link layer addresses of each other's addresses: what drops
// packets must not drop the question for them, too.
func introduce(tb testing.TB, a, b End) {
	tb.Helper()
	for _, way := range [][2]End{{a, b}, {b, a}} {
		at, of := way[0], way[1]
		for _, c := range of.CIDRs {
			ip, _, err := net.ParseCIDR(c)
			must.OK(tb, err)
			at.NetNS.netlink(tb, func(h *netlink.Handle) error {
				return h.NeighSet(&netlink.Neigh{
					LinkIndex: at.NetNS.Interface(tb, at.Name).Index, State: netlink.NUD_PERMANENT,
					IP: ip, HardwareAddr: of.NetNS.Interface(tb, of.Name).HardwareAddr,
				})
			})
		}
	}
}

// roomy makes sockets that hold all of a flood, whenever it is read.
var roomy = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
	return errors.Join(c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	}), err)
}}

// ListenUDP makes a socket at an address of the namespace, on any port if it names none,
// until the test ends. It holds 16 MB that nobody has read yet.
func (n *NetNS) ListenUDP(tb testing.TB, addr string) (c net.PacketConn) {
	tb.Helper()
	if !strings.Contains(addr, ":") {
		addr += ":0"
	}
	must.OK(tb, n.Do(func() (err error) { c, err = roomy.ListenPacket(tb.Context(), "udp4", addr); return err }))
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// DialUDP makes a socket in the namespace that sends to an address and port, until the test
// ends.
func (n *NetNS) DialUDP(tb testing.TB, addr string) (c net.Conn) {
	tb.Helper()
	must.OK(tb, n.Do(func() (err error) { c, err = (&net.Dialer{}).DialContext(tb.Context(), "udp4", addr); return err }))
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// BPFFS mounts a BPF file system of the test's own and returns its path.
func BPFFS(tb testing.TB) string {
	tb.Helper()
	RequireRoot(tb)
	dir := tb.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		tb.Fatalf("mount bpffs on %s: %v", dir, err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			tb.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// NetkitPair makes a netkit pair as a CNI plugin does, its primary end on the
// host, up and with their addresses. With l3 the ends have no link layer
// address and no neighbours. It skips the test on a kernel without netkit
// (before 6.7).
func NetkitPair(tb testing.TB, pod, host End, l3 bool) (podIf, hostIf hostif.Interface) {
	tb.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = host.Name
	pair := &netlink.Netkit{LinkAttrs: attrs, Mode: netlink.NETKIT_MODE_L2, Scrub: netlink.NETKIT_SCRUB_DEFAULT, PeerScrub: netlink.NETKIT_SCRUB_DEFAULT}
	if l3 {
		pair.Mode = netlink.NETKIT_MODE_L3
	}
	peer := netlink.NewLinkAttrs()
	peer.Name, peer.Namespace = pod.Name, netlink.NsFd(pod.NetNS.FD())
	pair.SetPeerAttrs(&peer)
	h := must.Get(netlink.NewHandleAt(netns.NsHandle(host.NetNS.FD()), unix.NETLINK_ROUTE))(tb)
	defer h.Close()
	if err := h.LinkAdd(pair); errors.Is(err, unix.EOPNOTSUPP) {
		SkipFeature(tb, "netkit")
	} else if err != nil {
		tb.Fatalf("make netkit pair: %v", err)
	}
	bringUp(tb, pod, host)
	if !l3 {
		introduce(tb, pod, host)
	}
	return pod.NetNS.Interface(tb, pod.Name), host.NetNS.Interface(tb, host.Name)
}
