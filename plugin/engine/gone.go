// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// Gone says whether nothing exists any more of the interface of a record, or another attachment
// has it. `podweir gc` removes what is left of it then, and status, repair and doctor say so. An interface that
// is not where its record says, but of which something still exists, or whose namespace is
// there, is not gone: left says what. Whether its pod has ended is not known then.
func (n *Node) Gone(r *apply.Record) (gone bool, left string, err error) {
	if _, err := n.Refind(r); !errors.Is(err, apply.ErrGone) {
		return false, "", err
	}
	if other, err := n.store.Another(r.ID, &r.Interface); other != nil || err != nil {
		return other != nil, "", err
	}
	if left, err = n.kernel.Left(&r.Interface); left == "" && err == nil {
		now := r.Interface
		now.NamesakeIndex, err = n.Namesake(r)
		left = now.Uncovered()
	}
	if left == "" && err == nil {
		var p *podNS
		if p, err = n.kernel.podOf(&r.Interface); p != nil {
			left = fmt.Sprintf("the pod's network namespace exists, without %s (ifindex %d)", r.Interface.PodName, r.Interface.PodIndex)
		}
	}
	return left == "" && err == nil, left, err
}

// Namesake returns the ifindex of a device that leads out of the pod under the name of an
// interface that is not there any more, 0 if there is none or an attachment has it.
func (n *Node) Namesake(r *apply.Record) (int, error) {
	p, err := n.kernel.podOf(&r.Interface)
	if p == nil || err != nil {
		return 0, err
	}
	other, err := n.kernel.Find(r.Interface.NetNSPath, r.Interface.PodName)
	if err != nil {
		return 0, nil //nolint:nilerr // nothing leads out by this name
	}
	if holder, err := n.store.Another(attach.ID{}, &other); holder != nil || err != nil {
		return 0, err
	}
	return other.PodIndex, nil
}

// Left implements [apply.Kernel]: the namespace has another path, or the host end may still be there.
func (k *kernel) Left(i *attach.Interface) (string, error) {
	path, err := k.movedTo(i)
	if err != nil {
		return "", err
	}
	if path != "" {
		return fmt.Sprintf("%s exists, in the network namespace that is now at %s", i.PodName, path), nil
	}
	dev, err := k.hostEnd(i)
	if dev == nil || err != nil {
		return "", err
	}
	if path, err = k.namespaceOfPeer(dev); err != nil {
		return "", err
	}
	where := "in the network namespace " + path
	if path == "" {
		where = "in a network namespace that has no name and no process"
	}
	return fmt.Sprintf("its host end %s (ifindex %d) exists, with the other end %s", i.HostName, i.HostIndex, where), nil
}

// hostEnd returns the host's end of an interface, nil if there is none.
func (k *kernel) hostEnd(i *attach.Interface) (*hostif.Interface, error) {
	if i.HostIndex == 0 {
		return nil, nil
	}
	dev, err := k.host.InterfaceByIndex(i.HostIndex)
	if errors.Is(err, hostif.ErrNoDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if is, err := k.isHostEnd(i, &dev); !is || err != nil {
		return nil, err
	}
	return &dev, nil
}

// movedTo returns the path of the namespace of an interface if the interface is in it, ""
// if not.
func (k *kernel) movedTo(i *attach.Interface) (string, error) {
	for _, path := range rtnl.NetNSPaths() {
		var st unix.Stat_t
		if unix.Stat(rtnl.Seen(path), &st) != nil || st.Ino != i.NetNSInode {
			continue
		}
		found := false
		err := k.visit(path, func(p *podNS) error {
			dev, err := p.handle.InterfaceByIndex(i.PodIndex)
			found = err == nil && p.holds(i) && i.IsKind(dev.Kind)
			if errors.Is(err, hostif.ErrNoDevice) {
				return nil
			}
			return err
		})
		if found || err != nil {
			return path, err
		}
	}
	return "", nil
}

// isEnd says whether the device that has the number of one end of an interface is that end.
func (k *kernel) isEnd(i *attach.Interface, s terms.Side, dev *hostif.Interface) (bool, error) {
	switch {
	case s != terms.SideHost:
		return i.IsKind(dev.Kind), nil
	case i.PodIndex == 0:
		return true, nil // its other end was never seen
	default:
		return k.isHostEnd(i, dev)
	}
}

// isHostEnd says whether a device of the host's is the other end of an interface: by its
// number and its kind, by the number of its peer, and by its name or the namespace of its
// peer: a pod may move its end to another namespace, and a node rename the other. The
// number alone is no sign: the kernel gives it to other devices, too. A namespace that
// nothing shows may be the one of the interface. No namespace stays open that was not.
func (k *kernel) isHostEnd(i *attach.Interface, dev *hostif.Interface) (bool, error) {
	if dev.Index != i.HostIndex || dev.PeerIndex != i.PodIndex || !i.IsKind(dev.Kind) || !dev.Kind.IsPair() {
		return false, nil
	}
	if dev.Name == i.HostName && dev.PeerNetNSID != hostif.NoNetNSID {
		return true, nil
	}
	if k.pods[i.NetNSPath] == nil {
		defer k.release(i.NetNSPath)
	}
	p, err := k.podOf(i)
	if err != nil {
		return false, err
	}
	if p != nil {
		return k.host.PeerIsIn(dev, k.hostNS, p.ns)
	}
	if dev.PeerNetNSID == hostif.NoNetNSID {
		return false, nil // its peer is on the host, or its namespace ends now
	}
	path, err := k.namespaceOfPeer(dev)
	if path == "" || err != nil {
		return true, err
	}
	same := false
	err = k.visit(path, func(p *podNS) error { same = p.holds(i); return nil })
	return same, err
}

// namespaceOfPeer returns the path of the namespace with the other end of a device of the
// host's, "" if it is out of sight.
func (k *kernel) namespaceOfPeer(dev *hostif.Interface) (string, error) {
	for _, path := range rtnl.NetNSPaths() {
		ns, err := rtnl.OpenNetNS(path)
		if errors.Is(err, rtnl.ErrNoNetNS) {
			continue
		}
		if err != nil {
			return "", err
		}
		is, err := k.host.PeerIsIn(dev, k.hostNS, ns)
		_ = ns.Close()
		if is || err != nil {
			return path, err
		}
	}
	return "", nil
}

// visit calls f with a namespace, and closes it if it was not open before. One that is gone
// meanwhile is passed over.
func (k *kernel) visit(path string, f func(*podNS) error) error {
	if k.pods[path] == nil {
		defer k.release(path)
	}
	p, err := k.pod(path)
	if errors.Is(err, rtnl.ErrNoNetNS) {
		return nil
	}
	if err != nil {
		return err
	}
	return f(p)
}
