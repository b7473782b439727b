// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// member is one key of an object with its value, and where they are written.
type member struct {
	key string
	raw json.RawMessage
	// start and end enclose the value.
	start, end int
}

// topLevel finds the members of the object that raw is. Of a key that is there
// twice the last one counts, as for libcni.
func topLevel(raw []byte) ([]member, error) {
	if !json.Valid(raw) {
		return nil, syntaxError(raw)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("is %s, want a JSON object", clipped(raw))
	}
	var out []member
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{}
		m.key, _ = token.(string) // a key of valid JSON always is one
		if err := dec.Decode(&m.raw); err != nil {
			return nil, err
		}
		m.end = int(dec.InputOffset())
		m.start = m.end - len(m.raw)
		out = append(slices.DeleteFunc(out, func(of member) bool { return of.key == m.key }), m)
	}
	return out, nil
}

// syntaxError says where raw stops being JSON.
func syntaxError(raw []byte) error {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	err := dec.Decode(&v)
	if err == nil {
		return fmt.Errorf("has more behind the JSON object, from byte %d", dec.InputOffset())
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("ends in the middle of the JSON object, after %d bytes", len(raw))
	}
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("is not JSON: %w at byte %d", err, s.Offset)
	}
	return fmt.Errorf("is not JSON: %w", err)
}

// elements finds the values of the array that raw is, with offsets in raw.
func elements(raw []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.New("not a list")
	}
	var out []member
	for dec.More() {
		var m member
		if err := dec.Decode(&m.raw); err != nil {
			return nil, err
		}
		m.end = int(dec.InputOffset())
		m.start = m.end - len(m.raw)
		out = append(out, m)
	}
	return out, nil
}

func decode(m member, into any, accepted string) error {
	if err := json.Unmarshal(m.raw, into); err != nil || bytes.Equal(m.raw, []byte("null")) {
		return &Error{Thing: m.key, Value: clipped(m.raw), Accepted: accepted}
	}
	return nil
}

// boolean reads true and false, and both as text, as libcni does.
func boolean(m member) (bool, error) {
	switch strings.ToLower(string(m.raw)) {
	case "true", `"true"`:
		return true, nil
	case "false", `"false"`:
		return false, nil
	}
	return false, &Error{Thing: m.key, Value: clipped(m.raw), Accepted: "true or false"}
}
