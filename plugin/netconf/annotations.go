// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of what is kept of a pod's annotations: its author may write 256 KiB of them,
// and the agent holds those of all pods of a node.
const (
	// MaxAnnotationBytes is the longest value of an annotation that is accepted.
	// Nothing that podweir reads needs more.
	MaxAnnotationBytes = 128
	// MaxUnknownNames is how many unknown annotations are listed individually.
	MaxUnknownNames = 5
)

// PodAnnotations is what podweir keeps of a pod's annotations. It unmarshals from the
// JSON object that has all of them, without holding them.
type PodAnnotations struct {
	// Values has the annotations that podweir reads. A value longer than
	// MaxAnnotationBytes is cut one byte after that, and is refused as too long. The
	// first MaxUnknownNames unknown ones, in the order of their names, are there
	// without their values.
	Values map[string]string
	// Unknown counts the annotations in podweir's domain that it does not know,
	// those in Values included.
	Unknown int
}

// KeepAnnotations returns what podweir keeps of annotations.
func KeepAnnotations(all map[string]string) PodAnnotations {
	var a PodAnnotations
	for name, value := range all {
		switch {
		case isRead(name):
			a.set(name, value)
		case strings.HasPrefix(name, AnnotationDomain):
			a.unknown(name)
		}
	}
	return a
}

// isRead says whether podweir reads an annotation.
func isRead(name string) bool {
	key, ours := strings.CutPrefix(name, AnnotationDomain)
	return name == IngressAnnotation || name == EgressAnnotation || ours && slices.Contains(annotationKeys, key)
}

// Cut returns a value of an annotation, or as much of it as it takes to refuse it. It
// does not keep the memory of the value alive.
func Cut(value string) string {
	return strings.Clone(value[:min(len(value), MaxAnnotationBytes+1)])
}

func (a *PodAnnotations) set(name, value string) {
	if a.Values == nil {
		a.Values = make(map[string]string)
	}
	a.Values[name] = Cut(value)
}

// unknown counts an unknown annotation and keeps its name if it is one of the first.
func (a *PodAnnotations) unknown(name string) {
	a.Unknown++
	name = Cut(name)
	if names := a.UnknownNames(); len(names) == MaxUnknownNames {
		last := names[len(names)-1]
		if name >= last {
			return
		}
		delete(a.Values, last)
	}
	a.set(name, "")
}

// UnknownNames lists the unknown annotations in Values, sorted.
func (a *PodAnnotations) UnknownNames() []string {
	var names []string
	for name := range a.Values {
		if !isRead(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Equal says whether two pods ask for the same. Unknown annotations ask for nothing.
func (a *PodAnnotations) Equal(o *PodAnnotations) bool {
	return maps.Equal(a.known(), o.known())
}

func (a *PodAnnotations) known() map[string]string {
	if a.Unknown == 0 {
		return a.Values
	}
	known := maps.Clone(a.Values)
	maps.DeleteFunc(known, func(name, _ string) bool { return !isRead(name) })
	return known
}

// Add takes one annotation, as the JSON texts of its name and value: see [EachString].
func (a *PodAnnotations) Add(name, value []byte) error {
	if bytes.IndexByte(name, '\\') < 0 && !bytes.HasPrefix(name, []byte(`"`+AnnotationDomain)) &&
		!bytes.HasPrefix(name, []byte(`"kubernetes.io/`)) {
		return nil
	}
	key, err := unquote(name)
	switch {
	case err != nil:
		return err
	case isRead(key):
		text, err := unquote(value)
		a.set(key, text)
		return err
	case strings.HasPrefix(key, AnnotationDomain):
		a.unknown(key)
	}
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *PodAnnotations) UnmarshalJSON(data []byte) error {
	*a = PodAnnotations{}
	return EachString(data, a.Add)
}

// unquote reads a JSON string, or null as encoding/json reads it into a string.
func unquote(text []byte) (string, error) {
	if len(text) > 2 && text[0] == '"' && bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return string(text[1 : len(text)-1]), nil
	}
	var s string
	err := json.Unmarshal(text, &s)
	return s, err
}

var errNotStrings = errors.New("not an object of strings")

// EachString calls f with the texts of every name and value of a JSON object of
// strings, which may be null. It allocates nothing for them. data is valid JSON, as
// [json.Unmarshaler] gets it; the error of one that is something else than such an
// object, or that f returned, comes when all have been read.
func EachString(data []byte, f func(name, value []byte) error) error {
	rest := bytes.TrimLeft(data, spaces)
	if bytes.HasPrefix(rest, []byte("null")) {
		return nil
	}
	if len(rest) == 0 || rest[0] != '{' {
		return errNotStrings
	}
	var first error
	for {
		var name, value []byte
		// After the bracket or the comma there is a name, or the end.
		rest = bytes.TrimLeft(rest[1:], spaces)
		if name, rest = stringText(rest); name == nil {
			return first
		}
		_, rest, _ = bytes.Cut(rest, []byte(":"))
		rest = bytes.TrimLeft(rest, spaces)
		if value, rest = stringText(rest); value == nil {
			if !bytes.HasPrefix(rest, []byte("null")) {
				return errNotStrings
			}
			value, rest = rest[:len("null")], rest[len("null"):]
		}
		if err := f(name, value); err != nil && first == nil {
			first = err
		}
		if rest = bytes.TrimLeft(rest, spaces); len(rest) == 0 || rest[0] != ',' {
			return first
		}
	}
}

// spaces are those of JSON.
const spaces = " \t\r\n"

// stringText returns the string that valid JSON begins with, its quotes included, nil
// if it begins with something else; and what follows it.
func stringText(data []byte) (text, rest []byte) {
	if len(data) == 0 || data[0] != '"' {
		return nil, data
	}
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return data[:i+1], data[i+1:]
		}
	}
	return nil, nil
}
