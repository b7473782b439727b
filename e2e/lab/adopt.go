// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Adopt makes a pod of the lab from a network namespace that another party
// made, for example a kubelet: path is its file, v4 its address on ifName. The
// lab puts load on it and keeps a name of its own for the namespace, which goes
// with the lab or by [Pod.Delete]; the pod stays. Its Check, Add and Del mean
// nothing.
//
// One setting of the namespace is changed, to that of the lab's own: a
// connection does not begin with the window that the last one ended with.
func (l *Lab) Adopt(name, path, ifName string, v4 netip.Addr) (*Pod, error) {
	ns, err := adoptNetns(l.name+"-"+name, path)
	if err != nil {
		return nil, err
	}
	id := l.onClose("namespace "+ns.Name(), func(context.Context) error { return ns.close() })
	p := &Pod{
		Host:    Host{Name: name, Netns: ns, IfName: ifName, V4: v4},
		network: &Network{lab: l},
	}
	p.closerID[1] = id
	if err := ns.sysctl("net/ipv4/tcp_no_metrics_save", "1"); err != nil {
		return nil, errors.Join(fmt.Errorf("namespace of %s: %w", name, err), l.closeNow(context.Background(), id))
	}
	return p, nil
}

// adoptNetns enters a namespace by any file of it and gives it a name in
// [netnsDir].
func adoptNetns(name, path string) (*Netns, error) {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", netnsDir, err)
	}
	return startNetns(name, func(n *Netns) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.Setns(int(f.Fd()), unix.CLONE_NEWNET), f.Close()); err != nil {
			return err
		}
		return n.bind()
	})
}
