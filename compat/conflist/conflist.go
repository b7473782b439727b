// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package conflist builds podweir's chained network configuration from the one
// that is in force, takes it apart again to the byte, and decides when such a
// file may be there and by which way podweir gets into the chain.
//
// It never writes: callers do, to files of podweir's own.
package conflist

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/podweir/podweir/plugin/terms"
)

// MaxBytes is the largest network configuration that is read: what fits into a
// ConfigMap (1 MiB in Kubernetes), from which some of them are copied. Real
// ones have less than 4 KiB.
const MaxBytes = 1 << 20

// Type is podweir's plugin type: the name of its binary.
const Type = "podweir-cni"

// bandwidthType is the reference plugin that shapes by the same annotations.
const bandwidthType = "bandwidth"

// networkName is what the CNI specification 1.1.0, section 1, accepts.
var networkName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

// Plugin is one entry of a chain.
type Plugin struct {
	// Type is the name of the plugin's binary.
	Type string
	// Raw is the entry as it is written.
	Raw json.RawMessage

	start, end int
}

// Network is what a container runtime takes from one configuration file.
type Network struct {
	// File is the name of the file, without its directory.
	File string
	// Name is the name of the network.
	Name string
	// Versions are those of the CNI specification that a runtime may call the plugins
	// with: the runtime's libcni takes one of them. A file that names none is of the
	// oldest.
	Versions []string
	// Single says that the file holds one plugin and no list (.conf, .json).
	Single bool
	// OnlyInlined says that the drop-in directory of the network is not read.
	OnlyInlined bool
	// Plugins is the chain in the file, drop-ins not included. It is empty only
	// if the file leaves everything to the drop-in directory.
	Plugins []Plugin
	// Mark is what podweir noted in its own file, else nil.
	Mark *Mark

	raw     []byte
	members []member
}

// Types lists the plugin types of the chain in order.
func (n *Network) Types() []string {
	out := make([]string, len(n.Plugins))
	for i, p := range n.Plugins {
		out[i] = p.Type
	}
	return out
}

// Index returns the position of the first plugin of this type, -1 without one.
func (n *Network) Index(pluginType string) int {
	for i, p := range n.Plugins {
		if p.Type == pluginType {
			return i
		}
	}
	return -1
}

// takesDropIns says whether a runtime that reads drop-in directories appends what is in
// that of this network: libcni does for lists alone, and runtimes make a list of a single
// plugin by themselves (github.com/containerd/go-cni v1.1.13, loadFromConfDir).
func (n *Network) takesDropIns() bool { return n == nil || !n.Single && !n.OnlyInlined }

// Refused says which version of the CNI specification is why podweir must not be in
// this network's chain, "" if none is or n is nil: a plugin that is called with a
// version that it does not speak fails before its own code runs, and so does the pod.
func (n *Network) Refused() string {
	if n == nil {
		return ""
	}
	known := terms.CNIVersions
	for _, v := range n.Versions {
		if !slices.Contains(known, v) {
			return fmt.Sprintf("%s has the CNI version %q, and podweir-cni speaks %s to %s: every pod would fail to start",
				n.File, clipped([]byte(v)), known[0], known[len(known)-1])
		}
	}
	return ""
}

// Parse reads a configuration as libcni 1.3 does: a name that ends in .conflist
// is a list, any other a single plugin. Errors are of type [*Error]. It refuses
// what runtimes let pass but what could not be taken apart again: more than
// [MaxBytes], and text that is not UTF-8.
func Parse(file string, raw []byte) (*Network, error) {
	n := &Network{File: path.Base(file), raw: raw, Single: path.Ext(file) != ".conflist"}
	if err := checkText(n.File, raw); err != nil {
		return nil, err
	}
	members, err := topLevel(raw)
	if err != nil {
		return nil, &Error{File: n.File, Err: err}
	}
	n.members = members
	if n.Single {
		err = n.parseSingle()
	} else {
		err = n.parseList()
	}
	if err != nil {
		return nil, err
	}
	if !networkName.MatchString(n.Name) {
		return nil, &Error{
			File: n.File, Thing: "name", Value: n.Name,
			Accepted: "letters, digits, _ . and -, beginning with a letter or digit (CNI specification)",
		}
	}
	return n, nil
}

func checkText(file string, raw []byte) error {
	switch {
	case len(raw) == 0:
		return &Error{File: file, Err: errors.New("the file is empty, want a JSON object")}
	case len(raw) > MaxBytes:
		return &Error{File: file, Thing: "size", Value: fmt.Sprintf("%d bytes", len(raw)), Accepted: fmt.Sprintf("at most %d", MaxBytes)}
	case bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")):
		return &Error{File: file, Err: errors.New("begins with a byte order mark, want plain JSON")}
	case !utf8.Valid(raw):
		return &Error{File: file, Err: fmt.Errorf("byte %d is not UTF-8, want JSON in UTF-8", invalidAt(raw))}
	}
	return nil
}

// invalidAt is the offset of the first byte that is not UTF-8.
func invalidAt(raw []byte) int {
	for i := 0; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return len(raw)
}

func (n *Network) parseSingle() error {
	p, err := plugin(n.raw)
	if err != nil {
		return &Error{File: n.File, Err: err}
	}
	// The keys of a single plugin are matched in any case, those of a list are
	// not: libcni decodes the one into a struct and the other into a map.
	var conf struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
	}
	if err := json.Unmarshal(n.raw, &conf); err != nil {
		return &Error{File: n.File, Err: err}
	}
	n.Name, n.Plugins = conf.Name, []Plugin{p}
	n.Versions = []string{cmp.Or(conf.CNIVersion, terms.CNIVersions[0])}
	return nil
}

func (n *Network) parseList() error {
	version := ""
	for _, m := range n.members {
		var err error
		switch m.key {
		case "name":
			err = decode(m, &n.Name, "a string")
		case "cniVersion":
			err = decode(m, &version, "a string")
		case "cniVersions":
			// libcni takes the highest that it speaks itself, an old one cniVersion.
			err = decode(m, &n.Versions, "a list of strings")
		case "loadOnlyInlinedPlugins":
			n.OnlyInlined, err = boolean(m)
		case "plugins":
			err = n.parsePlugins(m)
		case markKey:
			n.Mark, err = decodeMark(m)
		}
		if err != nil {
			if e, ok := errors.AsType[*Error](err); ok {
				e.File = n.File
				return e
			}
			return &Error{File: n.File, Err: err}
		}
	}
	n.Versions = append(n.Versions, cmp.Or(version, terms.CNIVersions[0]))
	if len(n.Plugins) == 0 && n.OnlyInlined {
		return &Error{File: n.File, Thing: "plugins", Accepted: "at least one: loadOnlyInlinedPlugins rules out drop-ins"}
	}
	return nil
}

func (n *Network) parsePlugins(m member) error {
	entries, err := elements(m.raw)
	if err != nil {
		return &Error{Thing: "plugins", Value: clipped(m.raw), Accepted: "a list of objects"}
	}
	if len(entries) == 0 {
		return &Error{Thing: "plugins", Value: "[]", Accepted: "at least one plugin"}
	}
	for i, e := range entries {
		p, err := plugin(e.raw)
		if err != nil {
			return &Error{Thing: fmt.Sprintf("plugins[%d]", i), Value: clipped(e.raw), Accepted: "an object with a type"}
		}
		p.start, p.end = m.start+e.start, m.start+e.end
		n.Plugins = append(n.Plugins, p)
	}
	return nil
}

// plugin reads one entry by the detour that libcni takes: through a map, so
// that of keys in several spellings the same one wins.
func plugin(raw []byte) (Plugin, error) {
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return Plugin{}, err
	}
	sorted, err := json.Marshal(object)
	if err != nil {
		return Plugin{}, err
	}
	var conf struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(sorted, &conf); err != nil {
		return Plugin{}, err
	}
	if conf.Type == "" {
		return Plugin{}, errors.New("has no type, want the name of a plugin")
	}
	return Plugin{Type: conf.Type, Raw: raw}, nil
}

var (
	// ErrChained says that podweir is in the chain already.
	ErrChained = errors.New("podweir is in the chain already")
	// ErrChanging says that a file was written to while it was read.
	ErrChanging = errors.New("the file changes while it is read")
)

// Error says which network configuration cannot be used and why.
type Error struct {
	// File is the name of the file.
	File string
	// Thing is the key, or what else of the file is wrong; empty if the file as
	// a whole is.
	Thing string
	// Value is what is there, Accepted what may be there.
	Value, Accepted string
	// Err is the cause, or nil.
	Err error
}

func (e *Error) Error() string {
	text := e.File
	if e.Thing != "" {
		text += ": " + e.Thing
	}
	if e.Accepted != "" {
		text += fmt.Sprintf(": %q is not accepted, want %s", e.Value, e.Accepted)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// maxQuoted is how much of a value is repeated in a message, in bytes.
const maxQuoted = 80

func clipped(b []byte) string {
	if len(b) > maxQuoted {
		return strings.ToValidUTF8(string(b[:maxQuoted]), "") + "..."
	}
	return string(b)
}

// notSettings are keys of podweir's entry that say nothing of limits. What the runtime
// passes has a check of its own.
var notSettings = []string{"type", "name", "cniVersion", "capabilities"}

// Otherwise lists the settings in which podweir's entry in the network's own chain differs
// from another entry: a pod starts with those of the chain. It is empty if either is
// missing.
func (n *Network) Otherwise(entry string) []string {
	if n == nil || entry == "" {
		return nil
	}
	at := n.Index(Type)
	if at < 0 {
		return nil
	}
	return Differences(n.Plugins[at].Raw, []byte(entry))
}

// Differences lists the settings in which two entries of podweir's differ, by name. How
// they are written does not count.
func Differences(a, b []byte) []string {
	var first, second map[string]any
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil {
		return nil
	}
	all := maps.Clone(first)
	maps.Copy(all, second)
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(notSettings, key) && !reflect.DeepEqual(first[key], second[key]) {
			differ = append(differ, key)
		}
	}
	return differ
}

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
