// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/units"
)

// setting is the first value of its sources. The others are checked too, so
// that what is wrong does not depend on what hides it.
func setting[T any](p *parser, preset T, parse func(string) (T, error), sources ...*source) T {
	found := false
	for _, s := range sources {
		if s == nil {
			continue
		}
		if s.bad != "" {
			p.ignore(*s, s.bad)
			continue
		}
		v, err := parse(s.value)
		if err != nil {
			accepted := err.Error()
			if bad, ok := errors.AsType[*units.ValueError](err); ok {
				accepted = bad.Accepted
			}
			p.ignore(*s, accepted)
			continue
		}
		if !found {
			preset, found = v, true
		}
	}
	return preset
}

// fieldError names a bad value.
func (s *source) fieldError(accepted string) *FieldError {
	return &FieldError{Field: s.field, Value: clipped(s.value), Accepted: accepted}
}

// ignore leaves out a bad value that says how a limit is kept.
func (p *parser) ignore(s source, accepted string) {
	instead := "podweir's default is used"
	if s.tuning || s.runtime || s.origin == ofNamespace {
		instead = "the node's own setting is used"
	}
	p.ignoreError(s.fieldError(accepted), instead)
}

// ignoreError remembers what is ignored, and tells what is done instead.
func (p *parser) ignoreError(e *FieldError, instead string) {
	if !addError(&p.config.Ignored, e) {
		return
	}
	p.tell(e.Error() + "; " + instead)
}

// tell puts something into the log and into what status shows.
func (p *parser) tell(text string) {
	p.warn("%s", text)
	p.notes = append(p.notes, text)
}

// addError says whether an error is new: the directions share keys, and each is
// named once.
func addError(to *[]*FieldError, e *FieldError) bool {
	if slices.ContainsFunc(*to, func(o *FieldError) bool { return *o == *e }) {
		return false
	}
	*to = append(*to, e)
	return true
}

// key finds a key of the network configuration; nil if it is absent.
func (p *parser) key(name string) *source { return p.value(p.conf, name, name, false) }

// annotation finds one of our annotations; nil if it is absent, or if it is none of
// those that the operator lets pods set.
func (p *parser) annotation(name string) *source {
	if p.untuned {
		return nil
	}
	return p.listed(name)
}

// listed finds one of our annotations if the operator lets pods set it; nil if not.
func (p *parser) listed(name string) *source {
	s := p.annotationNamed(AnnotationDomain+name, false)
	if s == nil {
		return nil
	}
	s.tuning = true
	if !slices.Contains(p.rules.names, name) {
		p.ignore(*s, "none: the node's podAnnotations does not list it")
		return nil
	}
	return s
}

func (p *parser) annotationNamed(name string, runtime bool) *source {
	v, ok := p.annotations.Values[name]
	if !ok {
		return nil
	}
	return &source{field: "annotation " + name, value: v, runtime: runtime, origin: ofPod, bad: tooLong(v)}
}

// tooLong says what is accepted of a value of an annotation that is too long, "" if it
// is not.
func tooLong(value string) string {
	if len(value) <= MaxAnnotationBytes {
		return ""
	}
	return fmt.Sprintf("at most %d bytes", MaxAnnotationBytes)
}

// value finds a string or number of an object; nil if it is absent. Anything else
// comes as a source that is bad.
func (p *parser) value(o object, key, field string, runtime bool) *source {
	raw := o.get(key)
	if raw == nil {
		return nil
	}
	s := &source{field: field, runtime: runtime}
	if runtime {
		s.origin = ofPod
	}
	v, ok := text(raw)
	if !ok {
		s.value, s.bad = string(raw), "a string or a number"
		return s
	}
	s.value = v
	return s
}

// child finds an object in an object; nil if it is absent. One that cannot be read
// may have held a rate.
func (p *parser) child(o object, key, field string) object {
	raw := o.get(key)
	if raw == nil {
		return nil
	}
	out, err := decodeObject(raw)
	if err != nil {
		s := source{field: field, value: string(raw)}
		addError(&p.unread, s.fieldError("a JSON object"))
	}
	return out
}
