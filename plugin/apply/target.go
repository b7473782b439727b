// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Errors about interfaces that were named.
var (
	// ErrGone means that the namespace or the interface of an attachment is gone.
	ErrGone = errors.New("interface is gone")
	// ErrNoNetNS means that it is the namespace; errors that wrap it wrap ErrGone too.
	ErrNoNetNS = errors.New("network namespace is gone")
	// ErrLoopback: nothing leaves the pod by its loopback device.
	ErrLoopback = errors.New("the loopback device is never limited")
	// ErrStandIn: the device carries nothing out of the pod by itself.
	ErrStandIn = errors.New("it carries nothing out of the pod by itself")
)

// target is one interface to shape.
type target struct {
	iface attach.Interface
	// prior is its record, nil if it has none, former that of another attachment that it is taken
	// over from.
	prior, former *Record
	// held is [Record.Held].
	held []string
}

// Targets returns the interfaces that an attachment has, or would get: see [Executor.Ensure].
// It changes nothing.
func (e *Executor) Targets(w *Want) ([]attach.Interface, error) {
	id, err := e.Kept(w.ID)
	if err != nil {
		return nil, err
	}
	priors, err := e.priors(id)
	if err != nil {
		return nil, err
	}
	s := e.search(w, priors)
	all := make([]attach.Interface, len(s.found))
	for i := range s.found {
		all[i] = s.found[i].iface
	}
	return all, s.failed
}

// search is what is to be shaped for the names of an attachment.
type search struct {
	executor *Executor
	want     *Want
	priors   map[string]*Record
	seen     []string

	found []target
	// stale are the records of what is not to be shaped any more, and gone those of interfaces that are gone: they go
	// if others are left.
	stale, gone []*Record
	// skipped are the names that were left out, and why; held and missing are [Record.Held].
	skipped       []skipped
	held, missing []string
	// failed says what has no limit for it, nil if nothing has not; unknown is how many of these may have one from before.
	failed  error
	unknown int
}

// formers finds whose the interfaces are that another attachment has. Those that it keeps are
// left out. If it has them all, and what is wanted, the error is a [*HeldError].
func (s *search) formers() error {
	var held error
	// An interface of another network of the container has its rate from that one's own entry.
	own := func(t *target) bool { return t.former != nil && t.former.ID.ContainerID == s.want.ID.ContainerID }
	among := len(s.found) + s.unknown
	for i := range s.found {
		t := &s.found[i]
		former, err := s.executor.store.Another(s.want.ID, &t.iface)
		if err != nil {
			return err
		}
		if t.former = former; own(t) {
			among--
		}
	}
	share := s.want.Config.Of(among)
	left := make([]target, 0, len(s.found))
	for _, t := range s.found {
		if takes := s.want.TakesOver; t.former == nil || takes != nil && takes(t.former.ID) {
			left = append(left, t)
			continue
		}
		if !own(&t) {
			s.held = append(s.held, t.iface.PodName)
		}
		by := &HeldError{By: t.former.ID, Lacks: lacks(&t.former.Config, share, !own(&t))}
		if len(by.Lacks) > 0 {
			s.failed = errors.Join(s.failed, fmt.Errorf("%s: %w", t.iface.PodName, by))
			continue
		}
		held = by
		s.skipped = append(s.skipped, skipped{t.iface.PodName, by})
	}
	if s.found = left; len(left) == 0 && s.failed == nil {
		return held
	}
	return nil
}

// lacks says how what an interface has limits it less than is wanted: in which directions it
// does not and, if rates are compared, where it allows more.
func lacks(has, wanted *shaping.Config, rates bool) (all []string) {
	for _, d := range terms.Directions {
		switch is, want := has.Part(d), wanted.Part(d); {
		case want == nil:
		case is == nil || has.Observe && !wanted.Observe:
			all = append(all, fmt.Sprintf("without a limit of %v", d))
		case rates && is.Rate > want.Rate && !wanted.Observe:
			all = append(all, fmt.Sprintf("with %v of %v in place of %v", is.Rate, d, want.Rate))
		}
	}
	return all
}

// config is what is wanted for each interface. One that another attachment has counts as one of
// those that share the limit, and so does one of which nothing can be found out.
func (s *search) config() *shaping.Config {
	return s.want.Config.Of(len(s.found) + len(s.held) + s.unknown)
}

// skipped is a name under which nothing is shaped, as that of a device which stands in for the interface.
type skipped struct {
	name string
	why  error
}

// search finds what is to be shaped.
func (e *Executor) search(w *Want, priors map[string]*Record) *search {
	s := &search{executor: e, want: w, priors: priors}
	names := w.Names
	if !w.Existing {
		names = append([]string{w.ID.IfName}, names...) // a result need not name it
	}
	if len(w.Names) == 0 {
		names = append(names, s.pairNames()...)
	}
	var standIns []skipped
	for _, name := range names {
		standIns = append(standIns, s.take(name)...)
	}
	s.replace(standIns)
	if len(s.found) == 0 && len(standIns) == 0 && s.failed == nil {
		s.renamed()
	}
	if len(s.found) > 0 {
		s.stale = append(s.stale, s.gone...)
	} else if s.failed == nil {
		for _, one := range s.skipped {
			s.failed = errors.Join(s.failed, one.why)
		}
	}
	return s
}

// renamed takes the only pair of a pod in which none of the names is there: it was renamed before the
// agent saw it. The chain may as well have made nothing that the kernel knows of.
func (s *search) renamed() {
	all, err := s.executor.kernel.Outward(s.want.NetNSPath)
	if p := pairs(all); err == nil && len(p) == 1 {
		if prior := s.recordOf(&p[0]); prior != nil || s.want.By == ByAgent && len(s.priors) == 0 {
			s.add(p[0], prior)
		}
	}
}

// pairNames are the names of the interfaces with an end on the host.
func (s *search) pairNames() []string {
	all, err := s.executor.kernel.Outward(s.want.NetNSPath)
	if err != nil && !errors.Is(err, ErrGone) { // that one is told of the name
		s.failed = err
	}
	var names []string
	for _, p := range pairs(all) {
		names = append(names, p.PodName)
	}
	return names
}

// take finds the interface of one name, or that something stands in for it.
func (s *search) take(name string) []skipped {
	if slices.Contains(s.seen, name) || errors.Is(s.failed, ErrNoNetNS) {
		return nil
	}
	s.seen = append(s.seen, name)
	prior := s.priors[name]
	iface, err := s.executor.find(s.want.NetNSPath, name, prior)
	if err == nil && prior == nil {
		prior = s.recordOf(&iface) // name may be another name of the device (altname)
	}
	notShaped := errors.Is(err, ErrStandIn) || errors.Is(err, ErrLoopback)
	if notShaped && prior != nil {
		s.stale = append(s.stale, prior)
	}
	switch {
	case errors.Is(err, ErrStandIn):
		return []skipped{{name, err}}
	case errors.Is(err, ErrGone) && !errors.Is(err, ErrNoNetNS):
		s.skipped = append(s.skipped, skipped{name, err})
		s.miss(name, prior)
	case errors.Is(err, ErrLoopback):
		s.skipped = append(s.skipped, skipped{name, err})
	case err != nil:
		s.failed = errors.Join(s.failed, err)
		s.unknown++
	default:
		s.add(iface, prior)
	}
	return nil
}

// miss keeps the name of an interface that is gone, and may come again. Its record is of no use, unless something of it
// is elsewhere.
func (s *search) miss(name string, prior *Record) {
	if prior != nil {
		left, err := s.executor.kernel.Left(&prior.Interface)
		if left != "" || err != nil {
			return
		}
		s.gone = append(s.gone, prior)
	}
	held := func(r *Record) bool { return slices.Contains(r.Held, name) }
	if prior != nil || slices.ContainsFunc(slices.Collect(maps.Values(s.priors)), held) {
		s.missing = append(s.missing, name)
	}
}

// add takes an interface, unless it was found under another name.
func (s *search) add(iface attach.Interface, prior *Record) {
	if slices.ContainsFunc(s.found, func(t target) bool { return t.iface.Same(&iface) }) {
		return
	}
	if prior != nil && !prior.Interface.Same(&iface) {
		// The same ID with a new namespace or device: what the record tells
		// of is gone, its ifb and its side on the host perhaps not.
		s.stale = append(s.stale, prior)
		prior = nil
	}
	s.found = append(s.found, target{iface: iface, prior: prior})
}

// replace finds what devices stand in for.
func (s *search) replace(standIns []skipped) {
	if len(standIns) == 0 {
		return
	}
	all, err := s.executor.kernel.Outward(s.want.NetNSPath)
	if err != nil {
		s.failed = errors.Join(s.failed, err)
	}
	for _, in := range standIns {
		behind := behind(in.name, all)
		if len(behind) == 0 {
			s.failed = errors.Join(s.failed, fmt.Errorf("%w, and no other interface there leads out of the pod", in.why))
		}
		for i := range behind {
			s.add(behind[i], s.recordOf(&behind[i]))
		}
	}
}

// behind are the interfaces that a device may stand in for, of those that lead out of the
// pod: KubeVirt renames that of eth0 to eth0-nic, and others are not known to have a rule.
func behind(name string, all []attach.Interface) []attach.Interface {
	if i := slices.IndexFunc(all, func(o attach.Interface) bool { return o.PodName == name+"-nic" }); i >= 0 {
		return all[i : i+1]
	}
	if p := pairs(all); len(p) > 0 {
		return p
	}
	return all
}

// pairs are the interfaces whose other end is on the host.
func pairs(all []attach.Interface) []attach.Interface {
	return slices.DeleteFunc(slices.Clone(all), func(i attach.Interface) bool { return i.HostIndex == 0 })
}

// recordOf returns the record of an interface, under whatever name it was made.
func (s *search) recordOf(i *attach.Interface) *Record {
	for _, r := range s.priors {
		if r.Interface.Same(i) {
			return r
		}
	}
	return nil
}
