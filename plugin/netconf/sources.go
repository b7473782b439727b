// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	if !slices.Contains(p.notes, text) {
		p.notes = append(p.notes, text)
	}
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

// annotation finds one of our annotations if the operator lets pods set it; nil if it is
// absent, or not let.
func (p *parser) annotation(name string) *source {
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

// object is a JSON object whose values are not read yet, so that one bad value
// does not hide the others.
type object map[string]json.RawMessage

var errNotObject = errors.New("not a JSON object")

func decodeObject(raw []byte) (object, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errNotObject
	}
	return o, nil
}

// lookup finds a key as encoding/json does: as it is written, else in any
// case. Of several spellings the smallest one wins, whatever the order of the
// map.
func (o object) lookup(key string) (json.RawMessage, bool) {
	if raw, ok := o[key]; ok {
		return raw, true
	}
	found := ""
	for k := range o {
		if strings.EqualFold(k, key) && (found == "" || k < found) {
			found = k
		}
	}
	if found == "" {
		return nil, false
	}
	return o[found], true
}

// get is lookup with null as absent.
func (o object) get(key string) json.RawMessage {
	raw, _ := o.lookup(key)
	if raw == nil || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}

// text is the value of a JSON string, or a JSON number as it is written.
func text(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, true
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String(), true
	}
	return "", false
}

// validAttachments reads GC's list. libcni also sends it under the name that
// the specification once had by mistake.
func (p *parser) validAttachments() error {
	const key, old = "cni.dev/valid-attachments", "cni.dev/attachments"
	for _, k := range [...]string{key, old} {
		raw, present := p.conf.lookup(k)
		if !present {
			continue
		}
		// null is how Go writes a list that is empty.
		if err := json.Unmarshal(raw, &p.config.Attachments); err != nil {
			return &ContractError{Code: codeInvalidConfig, Msg: "read " + k, Err: err}
		}
		return nil
	}
	return &ContractError{Code: codeInvalidConfig, Msg: key + " is missing: GC cannot tell what is still valid"}
}

// maxQuoted is how much of a value is repeated in a message, in bytes.
const maxQuoted = 80

// clipped is valid UTF-8 if s is: a record that has it comes back from JSON as it was.
func clipped(s string) string {
	if len(s) > maxQuoted {
		return strings.ToValidUTF8(s[:maxQuoted], "") + "..."
	}
	return s
}

func quoted(s string) string { return strconv.Quote(clipped(s)) }
