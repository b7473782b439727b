// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// asked is a rate and who asks for it; the rate is 0 where nobody does, or where the
// operator wants none.
type asked struct {
	rate units.BitRate
	by   *source
	// unread is the text of the pod's own setting that has precedence over by and is not accepted,
	// and unreadIn names that setting. Both are "" if there is none.
	unread, unreadIn string
}

// rate is the cap in the order of precedence (docs/reference/configuration.md, "Where
// a value comes from"), and at most the maximum; 0 means that there is none, or that
// none can be read, which is an error then. others says that the pod asks for exactly
// this by an annotation that other software enforces, too.
func (p *parser) rate(d terms.Direction) (chosen units.BitRate, others bool) {
	p.checkOwnMax(d)
	first, unread := p.firstRate(d)
	most := p.maxRate(d)
	chosen, others = first.rate, first.by != nil && first.by.runtime
	delete(p.decided, d)
	switch {
	case most.rate != 0 && (chosen == 0 || chosen > most.rate):
		p.decide(d, first, most.by)
	case chosen != 0 && (first.by.origin != ofPod || first.unread != ""):
		p.decide(d, first, first.by)
	}
	switch {
	case most.rate == 0:
	case chosen == 0:
		// Without a limit a pod would have more than the most.
		chosen, others = most.rate, false
	case chosen > most.rate:
		chosen, others = most.rate, false
		p.capped(first, most)
	}
	for _, e := range unread {
		if chosen != 0 {
			p.ignoreError(e, "another rate is used")
		} else {
			p.missing(d, e)
		}
	}
	return chosen, others
}

// decide remembers that another setting than the pod's has the last word.
func (p *parser) decide(d terms.Direction, first asked, by *source) {
	decision := shaping.Decision{Direction: d, Unread: first.unread, UnreadIn: first.unreadIn, By: by.field}
	if first.unread == "" && first.by != nil && first.by.origin == ofPod {
		decision.Asked = first.rate
	}
	if p.decided == nil {
		p.decided = make(map[terms.Direction]shaping.Decision)
	}
	p.decided[d] = decision
}

// firstRate is the first rate that can be read. What cannot be is returned beside it.
func (p *parser) firstRate(d terms.Direction) (first asked, unread []*FieldError) {
	dir := d.String()
	unread = slices.Clone(p.unread)
	for _, s := range []*source{
		p.annotation(dir + "-rate"), p.standardRate(dir), p.ofNamespace("default-" + dir + "-rate"), p.key(dir + "Rate"), p.key("defaultRate"),
	} {
		if s == nil {
			continue
		}
		rate, bad := p.rateOf(s)
		switch {
		case bad != nil:
			unread = append(unread, bad)
			if first.by == nil && first.unread == "" && s.origin == ofPod {
				first.unread, first.unreadIn = bad.Value, bad.Field
			}
		case first.by == nil:
			first.rate, first.by = rate, s
		}
	}
	return first, unread
}

// standardRate is what the pod asks for by the annotations of Kubernetes: as the
// runtime hands it over, or the annotation itself where it does not. nil if the pod
// does not ask.
func (p *parser) standardRate(dir string) *source {
	// The name is the annotation, not the CNI's key: only the annotation is known to the pod's author.
	s := p.value(p.bandwidth, dir+"Rate", "annotation kubernetes.io/"+dir+"-bandwidth", true)
	if s != nil && !isZero(s) {
		return s
	}
	return p.annotationNamed("kubernetes.io/"+dir+"-bandwidth", true)
}

// isZero says that a value is 0, which is how runtimes and the CNI's own keys ask for
// nothing.
func isZero(s *source) bool {
	v, err := units.ParseQuantity(s.value)
	return s.bad == "" && err == nil && v == 0
}

// maxRate is the lowest one of the namespace's and the node's maximum, and of what all pods of
// the namespace have together.
func (p *parser) maxRate(d terms.Direction) (lowest asked) {
	for _, most := range []asked{p.nodeMax(d), p.readMax(p.ofNamespace("max-" + d.String() + "-rate")), p.groupRate(d)} {
		if lowest.rate == 0 || most.rate != 0 && most.rate < lowest.rate {
			lowest = most
		}
	}
	return lowest
}

// groupRate is what the pods of the namespace may have together on this node: what is set for the
// namespace, or else for all, and at most the maximum for all.
func (p *parser) groupRate(d terms.Direction) asked {
	own, most := p.readMax(p.ofNamespace("node-"+d.String()+"-rate"), p.key("namespaceRate")), p.readMax(p.key("namespaceMaxRate"))
	if most.rate != 0 && (own.rate == 0 || own.rate > most.rate) {
		return most
	}
	return own
}

// nodeMax is the node's maximum: that of the direction if it can be read, else that of
// both.
func (p *parser) nodeMax(d terms.Direction) asked {
	return p.readMax(p.key(d.String()+"MaxRate"), p.key("maxRate"))
}

// readMax is the first maximum that can be read.
func (p *parser) readMax(sources ...*source) (first asked) {
	for _, s := range sources {
		if s == nil {
			continue
		}
		rate, bad := p.rateOf(s)
		switch {
		case bad != nil:
			p.ignoreError(bad, "it is no maximum")
		case first.by == nil:
			first = asked{rate: rate, by: s}
		}
	}
	return first
}

// capped tells that more than the maximum is requested. The node's own default may
// be above that of a namespace: it is for all namespaces.
func (p *parser) capped(first, most asked) {
	if first.by.origin == ofNode {
		return
	}
	if e := first.aboveMax(most); addError(&p.config.Capped, e) {
		p.tell(e.Error() + "; " + maxIsUsed)
	}
}

const maxIsUsed = "the maximum is used"

func (a *asked) aboveMax(most asked) *FieldError {
	return a.by.fieldError(fmt.Sprintf("at most %v (%s)", most.rate, most.by.field))
}

// checkOwnMax finds a default rate of the node that its own maximum does not allow,
// whatever a pod asks for.
func (p *parser) checkOwnMax(d terms.Direction) {
	preset := p.key(d.String() + "Rate")
	if preset == nil {
		preset = p.key("defaultRate")
	}
	p.checkPreset(preset, p.nodeMax(d))
	p.checkPreset(p.key("namespaceRate"), p.readMax(p.key("namespaceMaxRate")))
}

func (p *parser) checkPreset(by *source, most asked) {
	if by == nil || most.rate == 0 {
		return
	}
	preset := asked{by: by}
	preset.rate, _ = p.rateOf(by) // an unread one is reported elsewhere
	if preset.rate > most.rate {
		p.ignoreError(preset.aboveMax(most), maxIsUsed)
	}
}

// rateOf reads one rate. It is 0 where the operator says that there is none.
func (p *parser) rateOf(s *source) (units.BitRate, *FieldError) {
	accepted := units.AcceptedRate
	switch {
	case s.bad != "":
		return 0, s.fieldError(s.bad)
	case s.origin == ofNode && isZero(s):
		return 0, nil
	case s.origin == ofNamespace && s.mayBeNone:
		if s.value == noRate {
			return 0, nil
		}
		accepted += ", or " + noRate
	}
	v, err := units.ParseQuantity(s.value)
	rate := units.BitRate(v)
	switch {
	case err != nil || rate < units.MinRate || rate > units.MaxRate && s.origin != ofPod:
		return 0, s.fieldError(accepted)
	case rate > units.MaxRate:
		p.tell(fmt.Sprintf("%s: %s is above the highest rate, clamped to %v", s.field, quoted(s.value), units.MaxRate))
		return units.MaxRate, nil
	}
	return rate, nil
}

// missing remembers that a direction stays without a limit, and why.
func (p *parser) missing(d terms.Direction, e *FieldError) {
	if note := d.String() + " has no limit: " + e.Error(); !slices.Contains(p.notes, note) {
		p.notes = append(p.notes, note)
	}
	addError(&p.errs, e)
	if !slices.Contains(p.config.Unread, d) {
		p.config.Unread = append(p.config.Unread, d)
	}
}
