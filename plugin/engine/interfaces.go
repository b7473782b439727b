// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
)

var errNodeNS = errors.New("podweir does not limit the node")

// ownNetNS returns the namespace at a path. It refuses the node's own, with an error that wraps
// errNodeNS: a limit there would limit the node.
func (k *kernel) ownNetNS(netnsPath string) (*podNS, error) {
	p, err := k.pod(netnsPath)
	if err == nil && p.ns.Same(k.hostNS) {
		return nil, fmt.Errorf("%s is the network namespace of the node itself, as of a pod with hostNetwork: %w", netnsPath, errNodeNS)
	}
	return p, err
}

// Find implements [apply.Kernel].
func (k *kernel) Find(netnsPath, name string) (attach.Interface, error) {
	p, err := k.ownNetNS(netnsPath)
	if err != nil {
		return attach.Interface{}, goneIf(err, rtnl.ErrNoNetNS)
	}
	pair, err := hostif.FindPair(p.handle, k.host, p.ns, k.hostNS, name)
	return k.interfaceOf(p, netnsPath, &pair, err)
}

// Outward implements [apply.Kernel].
func (k *kernel) Outward(netnsPath string) ([]attach.Interface, error) {
	p, err := k.ownNetNS(netnsPath)
	if err != nil {
		return nil, goneIf(err, rtnl.ErrNoNetNS)
	}
	devices, err := p.handle.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []attach.Interface
	for i := range devices {
		pair, err := hostif.FindPairAt(p.handle, k.host, p.ns, k.hostNS, devices[i].Index)
		iface, err := k.interfaceOf(p, netnsPath, &pair, err)
		switch {
		case err == nil:
			all = append(all, iface)
		case errors.Is(err, apply.ErrGone), errors.Is(err, apply.ErrStandIn), errors.Is(err, apply.ErrLoopback):
		default:
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b attach.Interface) int { return cmp.Compare(a.PodIndex, b.PodIndex) })
	return all, nil
}

// find keeps what was found for the look that comes next.
func (k *kernel) find(p *podNS, pair *hostif.Pair) {
	clear(k.found)
	k.found[device{p.handle, pair.Pod.Index}], k.found[device{k.host, pair.Host.Index}] = pair.Pod, pair.Host
}

// interfaceOf is what was found of an interface, with the error of the search for its two
// ends: it may have one alone.
func (k *kernel) interfaceOf(p *podNS, path string, pair *hostif.Pair, err error) (attach.Interface, error) {
	if err != nil && (!errors.Is(err, hostif.ErrNoPeer) || pair.Pod.Index == 0) {
		return attach.Interface{}, goneIf(err, hostif.ErrNoDevice)
	}
	if pair.Pod.Loopback {
		return attach.Interface{}, fmt.Errorf("%s: %w", pair.Pod.Name, apply.ErrLoopback)
	}
	if pair.Host.Index == 0 && !pair.Pod.LeadsOut() {
		return attach.Interface{}, fmt.Errorf("%s (ifindex %d) in %s is a %s: %w",
			pair.Pod.Name, pair.Pod.Index, path, pair.Pod.NotLimited(), apply.ErrStandIn)
	}
	k.find(p, pair)
	found := attach.Interface{
		NetNSPath: path, NetNSInode: p.ns.Inode(), NetNSCookie: p.cookie,
		PodName: pair.Pod.Name, PodIndex: pair.Pod.Index, Kind: pair.Pod.Kind,
		HostName: pair.Host.Name, HostIndex: pair.Host.Index,
		MTU: pair.Pod.MTU, L3Only: pair.Pod.L3Only, Unseen: pair.Pod.Unseen,
	}
	if found.HostIndex != 0 {
		found.HostNetNSCookie = k.host.Cookie()
	}
	return found, nil
}

// astray returns an error if podweir runs in another network namespace than the one with the host's end of an
// interface that is there: it would find no other end, or somebody else's device under its number.
func (k *kernel) astray(i *attach.Interface) error {
	if i.HostNetNSCookie == 0 || k.host.Cookie() == 0 || i.HostNetNSCookie == k.host.Cookie() {
		return nil
	}
	if p, err := k.podOf(i); p == nil {
		return err // what is left of a pod that is gone may be removed from anywhere
	}
	return fmt.Errorf("%s in %s has its other end in another network namespace than podweir runs in: run podweir in that of the node (nsenter -t 1 -n)",
		i.PodName, i.NetNSPath)
}

// Again implements [apply.Kernel].
func (k *kernel) Again(i *attach.Interface) (attach.Interface, error) {
	p, err := k.pod(i.NetNSPath)
	if err != nil {
		return attach.Interface{}, goneIf(err, rtnl.ErrNoNetNS)
	}
	if !p.holds(i) {
		return attach.Interface{}, fmt.Errorf("%s (ifindex %d) in %s: %w, another namespace is in its place",
			i.PodName, i.PodIndex, i.NetNSPath, apply.ErrGone)
	}
	if err := k.astray(i); err != nil {
		return attach.Interface{}, err
	}
	pair, err := hostif.FindPairAt(p.handle, k.host, p.ns, k.hostNS, i.PodIndex)
	if pair.Pod.Index != 0 && !i.IsKind(pair.Pod.Kind) {
		return attach.Interface{}, fmt.Errorf("%s (ifindex %d) in %s: %w, %s of the kind %q has its number",
			i.PodName, i.PodIndex, i.NetNSPath, apply.ErrGone, pair.Pod.Name, pair.Pod.Kind)
	}
	now, err := k.interfaceOf(p, i.NetNSPath, &pair, err)
	if err != nil {
		return attach.Interface{}, err
	}
	if now.PodName != i.PodName {
		now.PodName, now.NowName = i.PodName, now.PodName // its pins are by the name that it had
		// A stand-in has no other end on the host, and the device itself may have its former name as another one (altname).
		other, err := hostif.FindPair(p.handle, k.host, p.ns, k.hostNS, i.PodName)
		if err == nil && other.Pod.Index != i.PodIndex {
			now.NamesakeIndex = other.Pod.Index
		}
	}
	return now, nil
}

// goneError is an error that is [apply.ErrGone] too, in its own words.
type goneError struct{ error }

// Is says that it is [apply.ErrGone], and [apply.ErrNoNetNS] if the namespace is gone.
func (e goneError) Is(target error) bool {
	return target == apply.ErrGone || target == apply.ErrNoNetNS && errors.Is(e.error, rtnl.ErrNoNetNS)
}
func (e goneError) Unwrap() error { return e.error }

func goneIf(err, cause error) error {
	if errors.Is(err, cause) {
		return goneError{err}
	}
	return err
}

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
