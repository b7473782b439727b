// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"errors"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
)

type podNS struct {
	ns     *rtnl.NetNS
	handle *hostif.Handle
	cookie uint64
	// shares is how many shares use it, see [Share.Close].
	shares int
}

// holds says whether it is the namespace of an interface.
func (p *podNS) holds(i *attach.Interface) bool {
	now := attach.Interface{NetNSInode: p.ns.Inode(), NetNSCookie: p.cookie, PodIndex: i.PodIndex}
	return i.Same(&now)
}

func (k *kernel) pod(path string) (*podNS, error) {
	if p := k.pods[path]; p != nil {
		return p, nil
	}
	ns, err := rtnl.OpenNetNS(path)
	if err != nil {
		return nil, err
	}
	h, err := hostif.NewHandle(ns)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	h.SetDeadline(k.deadline)
	k.pods[path] = &podNS{ns: ns, handle: h, cookie: h.Cookie()}
	return k.pods[path], nil
}

// SetDeadline implements [apply.Kernel]. Nothing ends a call of bpf(2) that is under
// way, and nothing the wait for RTNL within a netlink request.
func (k *kernel) SetDeadline(t time.Time) {
	k.deadline = t
	k.host.SetDeadline(t)
	for _, p := range k.pods {
		p.handle.SetDeadline(t)
	}
}

// release closes what pod opened.
func (k *kernel) release(path string) {
	if p := k.pods[path]; p != nil {
		p.handle.Close()
		_ = p.ns.Close()
		delete(k.pods, path)
	}
}

// releaseUnused closes a namespace that no share uses.
func (k *kernel) releaseUnused(path string) {
	if p := k.pods[path]; p != nil && p.shares == 0 {
		k.release(path)
	}
}

// podOf returns the pod's namespace if it is still the one of the record, nil
// if it is gone.
func (k *kernel) podOf(i *attach.Interface) (*podNS, error) {
	p, err := k.pod(i.NetNSPath)
	if errors.Is(err, rtnl.ErrNoNetNS) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !p.holds(i) {
		return nil, nil
	}
	return p, nil
}
