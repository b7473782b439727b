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
	"reflect"
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
// What others put into own, the file that podweir has already, stays in its place, such as the
// plugin of a service mesh. What they took out of it comes back from n,
// but not a plugin that is not installed any more: no pod would start. own may be nil. So may
// installed: then every plugin counts as installed.
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
	if len(n.Plugins) == 0 {
		return nil, &Error{File: n.File, Thing: "plugins", Accepted: "at least one: without a plugin there is nothing to chain to"}
	}
	if n.Plugins[0].Type == bandwidthType {
		return nil, &Error{File: n.File, Thing: "first plugin", Value: bandwidthType, Accepted: "a plugin that makes an interface"}
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
// network. Errors as for the entry of [Join].
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

// keys are the members of the network's file but its plugins and podweir's note.
func (n *Network) keys() []string {
	if n.Single {
		return nil // its list is made by podweir
	}
	var out []string
	for _, m := range n.members {
		if m.key != "plugins" && m.key != markKey {
			out = append(out, m.key)
		}
	}
	return out
}

// noted says what of podweir's own file is not from others: what podweir noted when it
// made the file, and what the original has now. Without a note, as in files of earlier
// releases and of people, a bandwidth plugin is taken for one of the original's.
func noted(own, original *Network) (plugins, keys []string) {
	plugins, keys = append(original.Types(), Type), append(original.keys(), "name", "cniVersion")
	if own.Mark != nil && own.Mark.Plugins != nil {
		return append(plugins, own.Mark.Plugins...), append(keys, own.Mark.Keys...)
	}
	return append(plugins, bandwidthType), keys
}

// Foreign lists the types of the plugins that others put into podweir's own file.
func (n *Network) Foreign(original *Network) []string {
	plugins, _ := noted(n, original)
	return slices.DeleteFunc(n.Types(), func(t string) bool { return slices.Contains(plugins, t) })
}

// Without lists the types of the entries that another network lacks, or has otherwise.
func (n *Network) Without(other *Network) []string {
	have := other.sorted()
	var out []string
	for _, p := range n.Plugins {
		if !slices.Contains(have, canonical(p.Raw)) {
			out = append(out, p.Type)
		}
	}
	return out
}

// withForeign adds to what podweir makes of an original what others put into its own
// file: each plugin behind the one that it stands behind now.
func withForeign(made []byte, original, own *Network) ([]byte, error) {
	if own == nil {
		return made, nil
	}
	plugins, keys := noted(own, original)
	n, err := Parse("x.conflist", made)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(n.Plugins)
	at := 0
	for _, p := range own.Plugins {
		if !slices.Contains(plugins, p.Type) {
			list = slices.Insert(list, at, p)
			at++
			continue
		}
		if found := slices.IndexFunc(list, func(o Plugin) bool { return o.Type == p.Type }); found >= 0 {
			at = found + 1
		}
	}
	if len(list) > len(n.Plugins) {
		var entries [][]byte
		for _, p := range list {
			entries = append(entries, p.Raw)
		}
		made = n.withEntries(entries)
	}
	for _, m := range own.members {
		if m.key != "plugins" && m.key != markKey && !slices.Contains(keys, m.key) {
			made = insertMember(made, m.key, m.raw)
		}
	}
	return made, nil
}

// takenOutOf lists the plugins of an original that another program took out of podweir's own
// file, now or before.
func (n *Network) takenOutOf(own *Network) []string {
	if own == nil || own.Mark == nil {
		return nil
	}
	var out []string
	for _, t := range n.Types()[1:] {
		if slices.Contains(own.Mark.TakenOut, t) || slices.Contains(own.Mark.Plugins, t) && t != bandwidthType && own.Index(t) < 0 {
			out = append(out, t)
		}
	}
	return out
}

// withoutGone returns the network without those plugins which are not installed.
func (n *Network) withoutGone(plugins []string, installed func(plugin string) bool) (*Network, error) {
	gone := slices.DeleteFunc(slices.Clone(plugins), func(t string) bool { return installed == nil || installed(t) })
	if len(gone) == 0 {
		return n, nil
	}
	var entries [][]byte
	for _, p := range n.Plugins {
		if !slices.Contains(gone, p.Type) {
			entries = append(entries, p.Raw)
		}
	}
	return Parse(n.File, n.withEntries(entries))
}

// withEntries returns the bytes of the network with other entries in place of its own.
func (n *Network) withEntries(entries [][]byte) []byte {
	first, last := n.Plugins[0], n.Plugins[len(n.Plugins)-1]
	return slices.Concat(n.raw[:first.start], bytes.Join(entries, separator(n.raw, last.start)), n.raw[last.end:])
}

// differs says in what podweir's file differs from what it has to be, "" if only in how it
// is written. Where podweir and the plugins of others stand behind the plugin that makes
// the interface is left to the others.
func (n *Network) differs(wanted *Network) string {
	if n.Types()[0] == Type || !reflect.DeepEqual(n.fixed(wanted), wanted.fixed(wanted)) {
		return "its chain"
	}
	if !reflect.DeepEqual(n.sorted(), wanted.sorted()) {
		return "an entry"
	}
	if !reflect.DeepEqual(n.settings(), wanted.settings()) {
		return "a setting of the network"
	}
	return ""
}

// fixed are the types of a chain that wanted has from its original, in their order.
func (n *Network) fixed(wanted *Network) []string {
	return slices.DeleteFunc(n.Types(), func(t string) bool { return t == Type || !slices.Contains(wanted.Mark.Plugins, t) })
}

// sorted are the entries of a chain as JSON, in an order that does not depend on the
// chain's.
func (n *Network) sorted() []string {
	var out []string
	for _, p := range n.Plugins {
		out = append(out, canonical(p.Raw))
	}
	slices.Sort(out)
	return out
}

// settings are the members of the file but its plugins, and of podweir's note what it
// compares with.
func (n *Network) settings() map[string]string {
	out := map[string]string{}
	for _, m := range n.members {
		if m.key != "plugins" && m.key != markKey {
			out[m.key] = canonical(m.raw)
		}
	}
	if n.Mark != nil {
		mark := *n.Mark
		mark.SHA256 = ""
		raw, _ := json.Marshal(mark) // it has strings only
		out[markKey] = string(raw)
	}
	return out
}

// canonical is a JSON value as any program writes it that reads numbers as most do.
func canonical(raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(out)
}
