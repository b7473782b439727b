// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/act"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// kernel implements apply.Kernel over netlink and
// bpf(2). It keeps sockets and programs open between the steps of one command.
type kernel struct {
	paths  Paths
	store  *store
	host   *hostif.Handle
	hostNS *rtnl.NetNS
	pods   map[string]*podNS
	slab   *datapath.Slab
	// shows says that what is seen is for people: part of it is better than nothing.
	shows bool
	// found are the two devices that were found last, until others are found.
	found map[device]hostif.Interface
	// seen is what the last look at a device found.
	seen map[device]*act.Seen
	// listed are the qdiscs of the host's devices, nil to read them at each look.
	listed *queue.Listing
	// known are the kernel's features, nil until they are read.
	known *features
	// deadline of all handles, zero for none.
	deadline time.Time
	// leaveIFB leaves the ifb to the namespace, which is about to go:
	// deleting one takes 25 ms.
	leaveIFB bool
}

// newKernel takes no store where there is no state: then nothing can be attached.
func newKernel(paths Paths, s *store) (*kernel, error) {
	root, shared := paths.Pins, paths.Pins
	if s != nil {
		root, shared = s.pins.Root(), s.pins.NodeDir(datapath.ABIVersion)
	}
	ns, err := rtnl.CurrentNetNS()
	if err != nil {
		return nil, err
	}
	h, err := hostif.NewHandle(nil)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return &kernel{
		paths: paths, store: s, host: h, hostNS: ns,
		pods: make(map[string]*podNS), found: make(map[device]hostif.Interface), seen: make(map[device]*act.Seen),
		slab: datapath.OpenSlab(root, shared),
	}, nil
}

func (k *kernel) close() {
	k.slab.Close()
	for path := range k.pods {
		k.release(path)
	}
	k.host.Close()
	_ = k.hostNS.Close()
}

// features are those of the node, read once.
func (k *kernel) features() (*features, error) {
	if k.known == nil {
		f, err := k.paths.features()
		if err != nil {
			return nil, err
		}
		k.known = f
	}
	return k.known, nil
}

// Facts implements [apply.Kernel].
func (k *kernel) Facts(i attach.Interface) (shaping.Facts, bool, error) {
	f, err := k.features()
	if err != nil {
		return shaping.Facts{}, false, err
	}
	tick, err := datapath.ClockTick()
	if err != nil {
		return shaping.Facts{}, false, err
	}
	return shaping.Facts{
		Prio: f.Prio, HTB: f.HTB, TBF: f.TBF, IFB: f.IFB && f.Redirect != "", NoIFB: f.noIFB(),
		MTU: i.MTU, L3Only: i.L3Only, ClockTick: tick,
		PastHost: pastHost(&i),
	}, f.TCX, nil
}

// pastHost says that packets may go past the host side of a device. The
// programs of a netkit pair run inside its transmit function and may redirect
// what the pod sends; what it is sent comes by bpf_redirect_peer as a rule, for
// whose sake these devices were made.
func pastHost(i *attach.Interface) bool { return i.Kind == terms.DeviceNetkit }

// pins is the directory of the interface's pins. Observe and Do refuse a record whose
// names cannot be a path.
func (k *kernel) pins(r *apply.Record) string {
	dir, _ := k.store.dir(r)
	return dir
}

// device is a device by the socket to reach it and its index.
type device struct {
	handle *hostif.Handle
	index  int
}

// place is one device of a pod with the namespace to reach it.
type place struct {
	device
	ns   *rtnl.NetNS
	side terms.Side
	// link is not known of every place: its name is "" then.
	link hostif.Interface
	// bare says that nobody has put a root qdisc there, as far as that is known.
	bare bool
	// majors are the major numbers that were drawn for the handles of podweir's queue there.
	majors []uint16
}

// placeOf returns nil if the device is gone.
func (k *kernel) placeOf(r *apply.Record, s terms.Side) (*place, error) {
	p, err := k.recordedPlace(r, s)
	if p == nil || err != nil || p.link.Name != "" {
		return p, err
	}
	dev, found := k.found[p.device]
	if delete(k.found, p.device); !found { // what was found is good for one look
		dev, err = p.handle.InterfaceByIndex(p.index)
	}
	if errors.Is(err, hostif.ErrNoDevice) {
		return nil, nil
	}
	if err == nil && !found {
		var is bool
		if is, err = k.isEnd(&r.Interface, s, &dev); !is && err == nil {
			return nil, nil
		}
	}
	p.link, p.bare = dev, dev.Qdisc == hostif.NoQueue
	return p, err
}

// recordedPlace is placeOf for whoever is told anyway that the device is gone. It does not
// ask for a device whose index the record has, and returns nil if the namespace is gone.
func (k *kernel) recordedPlace(r *apply.Record, s terms.Side) (*place, error) {
	i := &r.Interface
	if err := k.astray(i); err != nil {
		return nil, err
	}
	if s == terms.SideHost {
		if i.HostIndex == 0 {
			return nil, nil
		}
		return &place{device: device{k.host, i.HostIndex}, ns: k.hostNS, side: s, majors: r.Choices[terms.Ingress].Majors}, nil
	}
	p, err := k.podOf(i)
	if p == nil || err != nil {
		return nil, err
	}
	if s == terms.SidePod {
		return &place{device: device{p.handle, i.PodIndex}, ns: p.ns, side: s, majors: r.Choices[terms.Egress].Majors}, nil
	}
	ifb, err := p.handle.IFB(i.PodIndex)
	if errors.Is(err, hostif.ErrNoDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &place{device: device{p.handle, ifb.Index}, ns: p.ns, side: s, link: ifb}, nil
}

// Who divides a group's limit writes a share into the queue and then into the slot: between the two a look waits
// so long, and so often at most.
const (
	sharePause = 4 * time.Millisecond
	shareLooks = 5
)

// Observe implements [apply.Kernel].
func (k *kernel) Observe(r *apply.Record) (*attach.Observed, error) {
	if _, err := k.store.dir(r); err != nil {
		return nil, err
	}
	obs, err := k.observe(r)
	if err != nil || !unlikeSlots(r, obs) {
		return obs, err
	}
	turn, err := k.store.pins.Turn(r.ID)
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	for range shareLooks {
		alone := turn.Take() // not if this process has the lock itself: then nobody divides
		obs, err = k.observe(r)
		turn.Give()
		if alone || err != nil || !unlikeSlots(r, obs) {
			break
		}
		<-time.After(sharePause)
	}
	return obs, err
}

// unlikeSlots says that the queue of a direction has another share than its slot.
func unlikeSlots(r *apply.Record, obs *attach.Observed) bool {
	return slices.ContainsFunc(terms.Directions[:], func(d terms.Direction) bool {
		limit, dp := r.Config.Limit(d), obs.Dataplanes[d]
		if limit == nil || limit.Group == 0 || dp == nil {
			return false
		}
		share, classes := shaping.SlotShare(&dp.Datapath), obs.Device(dp.Side).Tree.Classes
		return len(classes) > 0 && !slices.ContainsFunc(classes, func(c shaping.Class) bool { return c.Rate == share })
	})
}

func (k *kernel) observe(r *apply.Record) (*attach.Observed, error) {
	obs := &attach.Observed{
		Devices:    make(map[terms.Side]*attach.Device),
		Dataplanes: make(map[terms.Direction]*attach.Dataplane),
		Recorded:   make(map[terms.Direction]bool),
		Left:       make(map[terms.Direction]bool),
	}
	for _, d := range terms.Directions {
		_, obs.Recorded[d] = r.Choices[d]
		dp, err := k.slab.Observe(k.pins(r), d)
		if err == nil {
			obs.Left[d], err = k.slab.HasLeft(k.pins(r), d)
		}
		if err != nil {
			return nil, err
		}
		if dp != nil {
			obs.Dataplanes[d] = dp
		}
	}
	for _, s := range []terms.Side{terms.SidePod, terms.SideHost, terms.SideIFB} {
		if s == terms.SideIFB && !looksForIFB(r, obs) {
			continue // whoever needs one after all takes one that is there
		}
		p, err := k.placeOf(r, s)
		if errors.Is(err, hostif.ErrForeignDevice) {
			obs.NoIFB = err.Error()
			continue
		}
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		p.bare = p.bare && len(r.Choices) == 0 // else podweir was there before
		dev, err := k.observeDevice(p, obs.Dataplanes)
		if errors.Is(err, hostif.ErrNoDevice) {
			continue // it went just now
		}
		if obs.Devices[s] = dev; err != nil {
			return nil, fmt.Errorf("%s (ifindex %d) in %s: %w", p.link.Name, p.index, p.handle.Where(), err)
		}
	}
	if err := k.observePacing(r, obs); err != nil {
		return nil, err
	}
	return obs, k.observeNetfilter(r, obs)
}

// observePacing reads by what TCP in the pod sizes its packets, for whoever changes it, did, or may have
// lost the record of that. Files in another namespace take 4 % of an ADD.
func (k *kernel) observePacing(r *apply.Record, obs *attach.Observed) error {
	lost := len(r.Choices) == 0 && obs.Device(terms.SidePod).OwnTree
	if !lost && !r.Config.MayPace() && r.Choices[terms.Egress].Pacing == nil {
		return nil
	}
	pod, err := k.podOf(&r.Interface)
	if pod != nil {
		obs.Pacing, err = act.Pacing(pod.ns, k.hostNS)
	}
	return err
}

// looksForIFB says that an ifb may be there, or that the ingress queue may have to move
// to one.
func looksForIFB(r *apply.Record, obs *attach.Observed) bool {
	ingress := r.Choices[terms.Ingress]
	return usesIFB(r, obs) || redirected(obs) || mayMoveToIFB(r, obs) || ingress.Degraded() || len(r.Choices) == 0 && !r.Config.Limited()
}

// redirected says that a redirect of podweir's is on the pod's device.
func redirected(obs *attach.Observed) bool {
	pod := obs.Devices[terms.SidePod]
	return pod != nil && slices.ContainsFunc(pod.Hooks, func(h attach.HookProgram) bool {
		return h.Ours && (h.Name == datapath.RedirectProgram || h.RedirectIndex != 0)
	})
}

func usesIFB(r *apply.Record, obs *attach.Observed) bool {
	dp := obs.Dataplanes[terms.Ingress]
	return dp != nil && dp.RedirectIndex != 0 || mayUseIFB(r)
}

// mayUseIFB says that the ingress queue is on an ifb, if there is no obstacle.
func mayUseIFB(r *apply.Record) bool {
	l := r.Config.Ingress
	return l != nil && (l.Place.IFB() || l.Place == terms.PlaceAuto && pastHost(&r.Interface) ||
		r.Choices[terms.Ingress].Place == terms.PlaceIFB)
}

// mayMoveToIFB says that the ingress queue cannot stand on the host side: a root
// qdisc of another party's is there.
func mayMoveToIFB(r *apply.Record, obs *attach.Observed) bool {
	host := obs.Devices[terms.SideHost]
	return r.Config.Ingress != nil && host != nil && host.Root() != nil && host.OwnRoot() == nil
}

// observeNetfilter looks for a chain behind the redirect; one that cannot be
// looked for counts as one that is there.
func (k *kernel) observeNetfilter(r *apply.Record, obs *attach.Observed) error {
	pod := obs.Devices[terms.SidePod]
	if pod == nil || !usesIFB(r, obs) && !mayMoveToIFB(r, obs) {
		return nil
	}
	p, err := k.podOf(&r.Interface)
	if err != nil || p == nil {
		return err
	}
	found, err := hostif.HasNetfilterIngress(p.ns, r.Interface.Name())
	pod.NetfilterIngress = found || err != nil
	return nil
}

func (k *kernel) observeDevice(p *place, slots map[terms.Direction]*attach.Dataplane) (*attach.Device, error) {
	q, err := k.observeQueue(p)
	if err != nil {
		return nil, err
	}
	now := act.Seen{NoRoot: q.Root() == nil, NoClsact: q.HookQdisc == ""}
	dev := &attach.Device{
		Exists: true, Index: p.index, Name: p.link.Name, MTU: units.Bytes(p.link.MTU), TxQueueLen: p.link.TxQueueLen,
		Offload:     attach.Offload{GSO: units.Bytes(p.link.GSOMaxSize), GSOIPv4: units.Bytes(p.link.GSOIPv4MaxSize)},
		MostOffload: units.Bytes(p.link.TSOMaxSize), Down: p.side == terms.SideIFB && !p.link.Up, Tree: q.Tree,
		Clsact: q.HookQdisc != "", IngressOnly: q.HookQdisc == "ingress", Blocks: q.Blocks, XDP: datapath.ReadXDP(p.link.XDP),
	}
	if q.Classifier != nil {
		dev.Classifier = k.hookProgram(q.Classifier)
	}
	err = p.ns.Do(func() error {
		var err error
		dev.Hooks, err = datapath.QueryTCX(p.index)
		return err
	})
	if err != nil && k.shows {
		dev.Unread, err = err.Error(), nil
	}
	if err != nil {
		return nil, err
	}
	for i := range dev.Hooks {
		if err := k.identify(&dev.Hooks[i], p, slots); err != nil {
			return nil, err
		}
	}
	for i := range q.HookFilters {
		f := &q.HookFilters[i]
		if i > 0 && f.FilterKind != "bpf" && f.FilterKind == q.HookFilters[i-1].FilterKind && f.Pref == q.HookFilters[i-1].Pref && f.Hook == q.HookFilters[i-1].Hook {
			// u32 and others list their tables and keys as filters, too, and have the
			// actions with the keys.
			last := &dev.Hooks[len(dev.Hooks)-1]
			last.RedirectIndex, last.Answer = cmp.Or(last.RedirectIndex, f.RedirectIndex), last.Answer.Then(f.Answer)
			continue
		}
		dev.Hooks = append(dev.Hooks, *k.hookProgram(f))
	}
	*k.seenOf(p.device) = now
	if k.shows || p.side == terms.SidePod { // the place of ingress depends on them
		datapath.ReadAnswers(dev.Hooks)
	}
	dev.OwnTree = ownTree(q, dev, p)
	return dev, nil
}

// observeQueue reads what tc has on a device.
func (k *kernel) observeQueue(p *place) (*queue.Device, error) {
	if k.listed != nil && p.handle == k.host {
		return k.listed.Observe(p.index)
	}
	if p.bare {
		return queue.ObserveBare(p.handle, p.index)
	}
	return queue.Observe(p.handle, p.index)
}

// ownTree says that podweir made a queue: the queue has a handle that podweir drew or podweir's
// shape, or podweir's program chooses its classes and no record tells of another queue. On podweir's own ifb every queue counts.
func ownTree(q *queue.Device, dev *attach.Device, p *place) bool {
	root := dev.Root()
	if root == nil {
		return false
	}
	drawn := slices.Contains(p.majors, uint16(uint32(root.Handle)>>16))
	if drawn || p.side == terms.SideIFB || q.Made() || dev.Classifier != nil && dev.Classifier.Ours {
		return true
	}
	switch {
	case len(p.majors) > 0: // a record tells which handles are podweir's
		return false
	case root.Kind == shaping.KindHTB, root.Kind == shaping.KindPrio:
		return slices.ContainsFunc(dev.Hooks, func(h attach.HookProgram) bool {
			return h.Ours && h.Hook == terms.HookEgress && datapath.Steers(h.Name)
		})
	default:
		return false
	}
}

// identify says of a TCX program whether it is of this build, and which slot it
// serves.
func (k *kernel) identify(h *attach.HookProgram, p *place, slots map[terms.Direction]*attach.Dataplane) error {
	if !h.Ours {
		return nil
	}
	d, slot := terms.DirectionAt(p.side, h.Hook), uint32(0)
	if dp := slots[d]; dp != nil {
		slot = dp.Slot
	}
	h.Current = datapath.Current(h.Name, h.Tag, datapath.CarrierOf(p.side, d, slot)) && k.slab.Serves(h.ProgramID, h.Name)
	if p.side != terms.SideHost {
		h.Slot = slot // a current program has it in its instructions
		return nil
	}
	var err error
	h.Slot, err = k.slab.HostSlot(d, p.index)
	return err
}

// hookProgram is the program of a filter of any party, with whose it is.
func (k *kernel) hookProgram(f *queue.Filter) *attach.HookProgram {
	current := datapath.Current(f.Name, f.Tag, datapath.ByClassID)
	if f.Ours = current || queue.Ours(f) || datapath.Ours(f.ProgramID, f.Name, f.Tag); f.Ours {
		const minor = 0xffff
		f.Current = current && k.slab.Serves(f.ProgramID, f.Name)
		f.Slot = uint32(f.ClassID) & minor
	}
	return &f.Program
}
