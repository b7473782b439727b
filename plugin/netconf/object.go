// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

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
