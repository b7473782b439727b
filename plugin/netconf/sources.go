// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"errors"
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
		v, err := parse(s.value)
		if err != nil {
			accepted := err.Error()
			if bad, ok := errors.AsType[*units.ValueError](err); ok {
				accepted = bad.Accepted
			}
			p.fail(*s, accepted)
			continue
		}
		if !found {
			preset, found = v, true
		}
	}
	return preset
}

// fail remembers a bad value. The directions share keys; each is named once.
func (p *parser) fail(s source, accepted string) {
	bad := &p.errs
	if s.tuning {
		bad = &p.config.Ignored
	}
	e := &FieldError{Field: s.field, Value: clipped(s.value), Accepted: accepted}
	if !slices.ContainsFunc(*bad, func(o *FieldError) bool { return *o == *e }) {
		*bad = append(*bad, e)
	}
}

// key finds a key of the network configuration; nil if it is absent.
func (p *parser) key(name string) *source { return p.value(p.conf, name, name, false) }

// annotation finds one of our annotations; nil if it is absent.
func (p *parser) annotation(name string) *source {
	if p.untuned {
		return nil
	}
	s := p.annotationNamed(AnnotationDomain+name, false)
	if s != nil {
		s.tuning = true
	}
	return s
}

func (p *parser) annotationNamed(name string, runtime bool) *source {
	v, ok := p.annotations[name]
	if !ok {
		return nil
	}
	return &source{field: "annotation " + name, value: v, runtime: runtime}
}

// value finds a string or number of an object; nil if it is absent.
func (p *parser) value(o object, key, field string, runtime bool) *source {
	raw := o.get(key)
	if raw == nil {
		return nil
	}
	s := &source{field: field, runtime: runtime}
	v, ok := text(raw)
	if !ok {
		s.value = string(raw)
		p.fail(*s, "a string or a number")
		return nil
	}
	s.value = v
	return s
}

// child finds an object in an object; nil if it is absent.
func (p *parser) child(o object, key, field string) object {
	raw := o.get(key)
	if raw == nil {
		return nil
	}
	out, err := decodeObject(raw)
	if err != nil {
		p.fail(source{field: field, value: string(raw)}, "a JSON object")
	}
	return out
}
