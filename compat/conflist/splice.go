// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Prefix is what every top-level file of ours begins with. It sorts before
// what primary CNIs use (05- and later).
const Prefix = "00-podweir-"

// DefaultEntry is podweir's entry without settings. The first
// capability has the runtime pass the limits, the second one the annotations.
const DefaultEntry = `{"type":"podweir-cni","capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true}}`

// markKey is the member that podweir adds to its own file. Runtimes
// ignore keys they do not know.
const markKey = "podweir"

// Mark is what podweir notes in its own file: what it made the file from, and so what in
// it others added since.
type Mark struct {
	// Plugins are the types of the chain that ours was made from, Keys the other members
	// of that file. Releases that did not keep what others added noted neither.
	Plugins []string `json:"plugins,omitempty"`
	Keys    []string `json:"keys,omitempty"`
	// Source is the name of that file.
	Source string `json:"source"`
	// SHA256 is the hash of its bytes, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Replaced is the bandwidth entry that ours took the place of, as it was
	// written.
	Replaced string `json:"replaced,omitempty"`
	// Single says that the original is one plugin and no list.
	Single bool `json:"single,omitempty"`
	// TakenOut are plugins of that file which another program took out of ours.
	TakenOut []string `json:"takenOut,omitempty"`
}

// Hash is the hash that [Mark] holds of a file.
func Hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func decodeMark(m member) (*Mark, error) {
	mark := &Mark{}
	if err := decode(m, mark, "what podweir wrote"); err != nil {
		return nil, err
	}
	return mark, nil
}

// maxName is NAME_MAX of Linux file systems, in bytes.
const maxName = 255

// FileName is the name of podweir's file for an original: it sorts before
// whatever a primary CNI writes, ends in .conflist because it holds a list,
// and has no "cilium" in it, because Cilium's uninstallation deletes files by
// that part of their name.
func FileName(original string) (string, error) {
	base := path.Base(original)
	stem := strings.TrimSuffix(base, path.Ext(base))
	for strings.Contains(stem, "cilium") {
		stem = strings.ReplaceAll(stem, "cilium", "")
	}
	name := Prefix + stem + ".conflist"
	if len(name) > maxName {
		return "", &Error{
			File: base, Thing: "name", Value: clipped([]byte(base)),
			Accepted: fmt.Sprintf("at most %d bytes with the prefix %q", maxName, Prefix),
		}
	}
	return name, nil
}

// Join returns the bytes of podweir's file: those of n with entry, a JSON
// object, put behind the last plugin, or in the place of a chained bandwidth
// plugin, because two shapers must not work on one annotation. Everything else
// stays as it is written.
//
// own is the file that podweir has already, or nil. What others put into own, such as the plugin
// of a service mesh, stays in its place. What they took out of it comes back from n, except a
// plugin that is no longer installed: no pod would start. If installed is nil, every plugin
// counts as installed.
//
// Returns an error wrapping [ErrChained] if podweir is in n.
func Join(n *Network, entry []byte, own *Network, installed func(plugin string) bool) ([]byte, error) {
	e, err := plugin(entry)
	if err != nil || e.Type != Type {
		return nil, fmt.Errorf("podweir's entry: %q is not accepted, want an object of type %s", clipped(entry), Type)
	}
	if n.Mark != nil || n.Index(Type) >= 0 {
		return nil, &Error{File: n.File, Err: ErrChained}
	}
	if err := n.MakesNone(); err != nil {
		return nil, err
	}
	source := Hash(n.raw)
	takenOut := n.takenOutOf(own)
	if n, err = n.withoutGone(takenOut, installed); err != nil {
		return nil, err
	}
	mark := &Mark{Source: n.File, SHA256: source, Plugins: n.Types(), Keys: n.keys(), Single: n.Single, TakenOut: takenOut}
	var out []byte
	if n.Single {
		out, err = spliceSingle(n, mark, entry)
	} else {
		out, err = spliceList(n, mark, entry)
	}
	if err != nil {
		return nil, err
	}
	return withForeign(out, n, own)
}

func spliceList(n *Network, mark *Mark, entry []byte) ([]byte, error) {
	var out []byte
	switch at := bandwidths(n); len(at) {
	case 0:
		last := n.Plugins[len(n.Plugins)-1]
		out = slices.Concat(n.raw[:last.end], separator(n.raw, last.start), entry, n.raw[last.end:])
	case 1:
		old := n.Plugins[at[0]]
		mark.Replaced = string(old.Raw)
		out = slices.Concat(n.raw[:old.start], entry, n.raw[old.end:])
	default:
		return nil, &Error{
			File: n.File, Thing: "plugins", Value: strings.Join(n.Types(), " "),
			Accepted: "at most one bandwidth plugin",
		}
	}
	value, err := encodeMark(mark)
	if err != nil {
		return nil, err
	}
	return insertMember(out, markKey, value), nil
}

// MakesNone says that no plugin of the chain makes an interface that podweir could limit, nil if one may or n is nil.
func (n *Network) MakesNone() error {
	switch {
	case n == nil:
		return nil
	case len(n.Plugins) == 0:
		return &Error{File: n.File, Thing: "plugins", Accepted: "at least one: without a plugin there is nothing to chain to"}
	case n.Plugins[0].Type == bandwidthType:
		return &Error{File: n.File, Thing: "first plugin", Value: bandwidthType, Accepted: "a plugin that makes an interface"}
	}
	return nil
}

func bandwidths(n *Network) []int {
	var at []int
	for i, p := range n.Plugins {
		if p.Type == bandwidthType {
			at = append(at, i)
		}
	}
	return at
}

// separator is the comma behind the last plugin, with the line break and the
// indentation that stand before that plugin.
func separator(raw []byte, start int) []byte {
	begin := start
	for begin > 0 && strings.IndexByte(" \t\r\n", raw[begin-1]) >= 0 {
		begin--
	}
	return append([]byte{','}, raw[begin:start]...)
}

// insertMember puts a member before the first one of the object that raw is.
func insertMember(raw []byte, key string, value []byte) []byte {
	open := bytes.IndexByte(raw, '{') + 1
	at := open + bytes.IndexByte(raw[open:], '"')
	return slices.Concat(raw[:open], raw[open:at], []byte(`"`+key+`": `), value, []byte{','}, raw[open:])
}

func encodeMark(mark *Mark) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	// The replaced entry stays readable.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(mark); err != nil {
		return nil, fmt.Errorf("encode mark: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// spliceSingle makes a list of a single plugin, as runtimes do: the plugin is
// the first entry, and name and cniVersion are repeated.
func spliceSingle(n *Network, mark *Mark, entry []byte) ([]byte, error) {
	value, err := encodeMark(mark)
	if err != nil {
		return nil, err
	}
	head := map[string]json.RawMessage{}
	var conf struct {
		CNIVersion *string `json:"cniVersion"`
		Name       string  `json:"name"`
	}
	if err := json.Unmarshal(n.raw, &conf); err != nil {
		return nil, &Error{File: n.File, Err: err}
	}
	for key, v := range map[string]any{"cniVersion": conf.CNIVersion, "name": conf.Name} {
		if head[key], err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  %q: %s,\n", markKey, value)
	if conf.CNIVersion != nil {
		fmt.Fprintf(&b, "  \"cniVersion\": %s,\n", head["cniVersion"])
	}
	fmt.Fprintf(&b, "  \"name\": %s,\n  \"plugins\": [", head["name"])
	b.Write(n.raw)
	fmt.Fprintf(&b, ",%s]\n}\n", entry)
	return b.Bytes(), nil
}

// DropIn returns the bytes of podweir's file in the drop-in directory of a
// network. The errors are those of [Join] for its entry.
func DropIn(entry []byte) ([]byte, error) {
	p, err := plugin(entry)
	if err != nil || p.Type != Type {
		return nil, fmt.Errorf("podweir's entry: %q is not accepted, want an object of type %s", clipped(entry), Type)
	}
	return append(bytes.TrimSpace(entry), '\n'), nil
}

// DropInFile is the name of podweir's file in a drop-in directory.
const DropInFile = "50-podweir.conf"

// Others rewrite the first file of the directory to put a plugin of theirs into it. What
// they put into podweir's file is part of it from then on.
