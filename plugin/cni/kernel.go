// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
)

// Positions of our clsact filters. Nobody else's default preference is near
// them; that of the redirect is queue.RedirectPref.
const (
	prefHook  = 49000
	prefGuard = 49001
	// filterHandle is the handle of a filter under its preference.
	filterHandle = 1
)

// kernel implements attach.Kernel and attach.Interfaces over netlink and
// bpf(2). It keeps sockets and programs open between the steps of one command.
type kernel struct {
	paths   Paths
	store   *store
	host    *hostif.Handle
	hostNS  *hostif.NetNS
	pods    map[string]*podNS
	objects map[string]*datapath.Objects
	loading map[string]*loading
	// leaveIFB leaves the ifb to the namespace, which is about to go:
	// deleting one takes 25 ms.
	leaveIFB bool
}

type podNS struct {
	ns     *hostif.NetNS
	handle *hostif.Handle
}

func newKernel(paths Paths, s *store) (*kernel, error) {
	ns, err := hostif.CurrentNetNS()
	if err != nil {
		return nil, err
	}
	h, err := hostif.NewHandle(nil)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return &kernel{
		paths: paths, store: s, host: h, hostNS: ns,
		pods: make(map[string]*podNS), objects: make(map[string]*datapath.Objects),
		loading: make(map[string]*loading),
	}, nil
}

func (k *kernel) close() {
	for _, l := range k.loading {
		if <-l.done; l.objs != nil {
			l.objs.Close()
		}
	}
	for _, o := range k.objects {
		o.Close()
	}
	for _, p := range k.pods {
		p.handle.Close()
		_ = p.ns.Close()
	}
	k.host.Close()
	_ = k.hostNS.Close()
}

func (k *kernel) pod(path string) (*podNS, error) {
	if p := k.pods[path]; p != nil {
		return p, nil
	}
	ns, err := hostif.OpenNetNS(path)
	if err != nil {
		return nil, err
	}
	h, err := hostif.NewHandle(ns)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	k.pods[path] = &podNS{ns: ns, handle: h}
	return k.pods[path], nil
}

// podOf returns the pod's namespace if it is still the one of the record, nil
// if it is gone.
func (k *kernel) podOf(i *attach.Interface) (*podNS, error) {
	p, err := k.pod(i.NetNSPath)
	if errors.Is(err, hostif.ErrNoNetNS) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if p.ns.Inode() != i.NetNSInode {
		return nil, nil
	}
	return p, nil
}

// Find implements [attach.Interfaces].
func (k *kernel) Find(netnsPath, name string) (attach.Interface, error) {
	p, err := k.pod(netnsPath)
	if err != nil {
		return attach.Interface{}, goneIf(err, hostif.ErrNoNetNS)
	}
	pair, err := hostif.FindPair(p.handle, k.host, p.ns, k.hostNS, name)
	if err != nil && (!errors.Is(err, hostif.ErrNoPeer) || pair.Pod.Index == 0) {
		return attach.Interface{}, goneIf(err, hostif.ErrNoDevice)
	}
	return attach.Interface{
		NetNSPath: netnsPath, NetNSInode: p.ns.Inode(),
		PodName: pair.Pod.Name, PodIndex: pair.Pod.Index, Kind: pair.Pod.KindName,
		HostName: pair.Host.Name, HostIndex: pair.Host.Index,
		MTU: pair.Pod.MTU, L3Only: pair.Pod.L3Only,
	}, nil
}

// goneError is an error that is [attach.ErrGone] too, in its own words.
type goneError struct{ error }

// Is says that it is [attach.ErrGone].
func (goneError) Is(target error) bool { return target == attach.ErrGone }
func (e goneError) Unwrap() error      { return e.error }

func goneIf(err, cause error) error {
	if errors.Is(err, cause) {
		return goneError{err}
	}
	return err
}

// Facts implements [attach.Interfaces].
func (k *kernel) Facts(i attach.Interface) (shaping.Facts, bool, error) {
	f, err := k.paths.features()
	if err != nil {
		return shaping.Facts{}, false, err
	}
	tick, err := datapath.ClockTick()
	if err != nil {
		return shaping.Facts{}, false, err
	}
	past := pastHost(&i)
	return shaping.Facts{
		Prio: f.Prio, FQ: f.FQ, HTB: f.HTB, TBF: f.TBF, IFB: f.IFB && f.Redirect != "", NoIFB: f.noIFB(),
		MTU: i.MTU, L3Only: i.L3Only, ClockTick: tick,
		IngressPastHost: past, EgressPastHost: past,
	}, f.TCX, nil
}

// pastHost says that packets may go past the host side of a device. The
// programs of a netkit pair run inside its transmit function and may redirect
// what the pod sends; what it is sent comes by bpf_redirect_peer as a rule, for
// whose sake these devices were made.
func pastHost(i *attach.Interface) bool { return i.Kind == hostif.KindNetkit.String() }

// pins is the directory of the interface's pins. Its names were checked when
// the record was written there.
func (k *kernel) pins(r *attach.Record) string {
	dir, err := k.store.dir(r)
	if err != nil {
		panic(err)
	}
	return dir
}

// place is one device with the socket and the namespace to reach it.
type place struct {
	handle *hostif.Handle
	ns     *hostif.NetNS
	index  int
	name   string
	// down is known of an ifb only.
	down bool
}

// placeOf returns nil if the device is gone.
func (k *kernel) placeOf(r *attach.Record, s shaping.Side) (*place, error) {
	i := &r.Interface
	if s == shaping.SideHost {
		if i.HostIndex == 0 {
			return nil, nil
		}
		return existing(&place{handle: k.host, ns: k.hostNS, index: i.HostIndex})
	}
	p, err := k.podOf(i)
	if p == nil || err != nil {
		return nil, err
	}
	if s == shaping.SidePod {
		return existing(&place{handle: p.handle, ns: p.ns, index: i.PodIndex})
	}
	ifb, err := p.handle.IFB(i.PodIndex)
	if errors.Is(err, hostif.ErrNoDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &place{handle: p.handle, ns: p.ns, index: ifb.Index, name: ifb.Name, down: !ifb.Up}, nil
}

func existing(p *place) (*place, error) {
	dev, err := p.handle.InterfaceByIndex(p.index)
	if errors.Is(err, hostif.ErrNoDevice) {
		return nil, nil
	}
	p.name = dev.Name
	return p, err
}

// Observe implements [attach.Kernel].
func (k *kernel) Observe(r *attach.Record) (*attach.Observed, error) {
	obs := &attach.Observed{
		Devices:    make(map[shaping.Side]*attach.Device),
		Dataplanes: make(map[shaping.Direction]*attach.Dataplane),
		Recorded:   make(map[shaping.Direction]bool),
	}
	for _, d := range shaping.Directions {
		_, obs.Recorded[d] = r.Choices[d.String()]
		dp, err := datapath.Observe(k.pins(r), d)
		if err != nil {
			return nil, err
		}
		if dp != nil {
			obs.Dataplanes[d] = dp
		}
	}
	for _, s := range []shaping.Side{shaping.SidePod, shaping.SideHost, shaping.SideIFB} {
		if s == shaping.SideIFB && !usesIFB(r, obs) {
			continue
		}
		p, err := k.placeOf(r, s)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		if obs.Devices[s], err = observeDevice(p); err != nil {
			return nil, fmt.Errorf("%s (ifindex %d) in %s: %w", p.name, p.index, p.handle.Where(), err)
		}
	}
	return obs, k.observeNetfilter(r, obs)
}

func usesIFB(r *attach.Record, obs *attach.Observed) bool {
	dp := obs.Dataplanes[shaping.Ingress]
	return dp != nil && dp.RedirectID != 0 || mayUseIFB(r)
}

// mayUseIFB says that the ingress queue is on an ifb, if there is no obstacle.
func mayUseIFB(r *attach.Record) bool {
	l := r.Config.Ingress
	return l != nil && (l.Place.IFB() || l.Place == shaping.PlaceAuto && pastHost(&r.Interface) ||
		r.Choices[shaping.Ingress.String()].Place == shaping.PlaceIFB)
}

// mayMoveToIFB says that the ingress queue cannot stand on the host side: a root
// qdisc of somebody else's is there.
func mayMoveToIFB(r *attach.Record, obs *attach.Observed) bool {
	host := obs.Devices[shaping.SideHost]
	if r.Config.Ingress == nil || host == nil || host.Root() == nil {
		return false
	}
	return !ownRoot(host.Root(), r.Choices[shaping.Ingress.String()].Majors)
}

// observeNetfilter looks for a chain behind the redirect; one that cannot be
// looked for counts as one that is there.
func (k *kernel) observeNetfilter(r *attach.Record, obs *attach.Observed) error {
	pod := obs.Devices[shaping.SidePod]
	if pod == nil || !usesIFB(r, obs) && !mayMoveToIFB(r, obs) {
		return nil
	}
	p, err := k.podOf(&r.Interface)
	if err != nil || p == nil {
		return err
	}
	found, err := hostif.HasNetfilterIngress(p.ns, r.Interface.PodName)
	pod.NetfilterIngress = found || err != nil
	return nil
}

func observeDevice(p *place) (*attach.Device, error) {
	q, err := queue.Observe(p.handle, p.index)
	if err != nil {
		return nil, err
	}
	dev := &attach.Device{
		Exists: true, Index: p.index, Name: p.name, Down: p.down, Tree: q.Tree,
		FilterProgramID: q.FilterProgramID, Clsact: q.HookQdisc != "",
	}
	var tcx []attach.HookProgram
	err = p.ns.Do(func() error {
		var err error
		tcx, err = datapath.QueryTCX(p.index)
		return err
	})
	if err != nil {
		return nil, err
	}
	dev.Hooks = append(tcx, hookFilters(q)...)
	return dev, nil
}

func subnets(c *shaping.Config) []netip.Prefix {
	if len(c.Unshaped) > 0 {
		return c.Unshaped
	}
	return c.Shaped
}

var errGone = errors.New("device is gone")

func (k *kernel) mustPlace(r *attach.Record, s shaping.Side) (*place, error) {
	p, err := k.placeOf(r, s)
	if err == nil && p == nil {
		err = fmt.Errorf("%v side of %s in %s: %w", s, r.Interface.PodName, r.Interface.NetNSPath, errGone)
	}
	return p, err
}
