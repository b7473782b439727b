// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package conflist builds podweir's chained network configuration from the one
// that is in force, and decides when such a file may be there and by which way
// podweir gets into the chain.
//
// It never writes: callers do, to files of podweir's own.
package conflist

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

	raw []byte
	// begins says that podweir's drop-in would be the first plugin of the chain.
	begins bool
	// members are those of the list that is in the file, or that runtimes make of a single
	// plugin, but the plugins and podweir's note.
	members map[string]json.RawMessage
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
// is a list, any other a single plugin. Errors are of type [*Error]. It also refuses
// more than [MaxBytes], and text that is not UTF-8.
func Parse(file string, raw []byte) (*Network, error) {
	n := &Network{File: path.Base(file), raw: raw, Single: path.Ext(file) != ".conflist"}
	if err := checkText(n.File, raw); err != nil {
		return nil, err
	}
	err := json.Unmarshal(raw, &n.members)
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, &Error{File: n.File, Err: fmt.Errorf("is not JSON: %w at byte %d", err, at.Offset)}
	}
	if err != nil || n.members == nil {
		return nil, &Error{File: n.File, Err: fmt.Errorf("is %s, want a JSON object", clipped(raw))}
	}
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
		return &Error{File: file, Err: fmt.Errorf("byte %d is not UTF-8, want JSON in UTF-8", bytes.IndexRune(raw, utf8.RuneError))}
	}
	return nil
}

func (n *Network) parseSingle() error {
	p, err := plugin(n.raw)
	if err != nil {
		return &Error{File: n.File, Err: err}
	}
	// The keys of a single plugin are matched in any case, those of a list are
	// not: libcni decodes the one into a struct and the other into a map.
	var conf struct {
		CNIVersion *json.RawMessage `json:"cniVersion"`
		Name       *json.RawMessage `json:"name"`
	}
	if err := json.Unmarshal(n.raw, &conf); err != nil {
		return &Error{File: n.File, Err: err}
	}
	n.Plugins, n.members = []Plugin{p}, map[string]json.RawMessage{}
	for key, raw := range map[string]*json.RawMessage{"cniVersion": conf.CNIVersion, "name": conf.Name} {
		if raw != nil {
			n.members[key] = *raw
		}
	}
	return n.parseNames()
}

// parseNames reads the name of the network and the versions of the specification.
func (n *Network) parseNames() error {
	version := ""
	for _, f := range []struct {
		key      string
		into     any
		accepted string
	}{
		{"name", &n.Name, "a string"},
		{"cniVersion", &version, "a string"},
		// libcni takes the highest that it speaks itself, an old one cniVersion.
		{"cniVersions", &n.Versions, "a list of strings"},
		{markKey, &n.Mark, "what podweir wrote"},
	} {
		raw := n.members[f.key]
		if raw != nil && (json.Unmarshal(raw, f.into) != nil || string(raw) == "null") {
			return &Error{File: n.File, Thing: f.key, Value: clipped(raw), Accepted: f.accepted}
		}
	}
	n.Versions = append(n.Versions, cmp.Or(version, terms.CNIVersions[0]))
	return nil
}

func (n *Network) parseList() error {
	if err := n.parseNames(); err != nil {
		return err
	}
	for _, key := range []string{"disableCheck", "disableGC", "loadOnlyInlinedPlugins"} {
		raw := n.members[key]
		// libcni reads true and false, and both as text.
		word := strings.ToLower(strings.Trim(string(raw), `"`))
		if n.OnlyInlined = word == "true"; !n.OnlyInlined && word != "false" && raw != nil {
			return &Error{File: n.File, Thing: key, Value: clipped(raw), Accepted: "true or false"}
		}
	}
	if raw := n.members["plugins"]; raw != nil {
		if err := n.parsePlugins(raw); err != nil {
			return err
		}
	}
	delete(n.members, "plugins")
	delete(n.members, markKey)
	if len(n.Plugins) == 0 && n.OnlyInlined {
		return &Error{File: n.File, Thing: "plugins", Accepted: "at least one: loadOnlyInlinedPlugins rules out drop-ins"}
	}
	return nil
}

func (n *Network) parsePlugins(raw json.RawMessage) error {
	var entries []json.RawMessage
	if json.Unmarshal(raw, &entries) != nil || entries == nil {
		return &Error{File: n.File, Thing: "plugins", Value: clipped(raw), Accepted: "a list of objects"}
	}
	if len(entries) == 0 {
		return &Error{File: n.File, Thing: "plugins", Value: "[]", Accepted: "at least one plugin"}
	}
	for i, e := range entries {
		p, err := plugin(e)
		if err != nil {
			return &Error{File: n.File, Thing: fmt.Sprintf("plugins[%d]", i), Value: clipped(e), Accepted: "an object with a type"}
		}
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

// ErrChanging says that a file was written to while it was read.
var ErrChanging = errors.New("the file changes while it is read")

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

// SameEntry says that two entries are the same, however they are written.
func SameEntry(a, b []byte) bool { return canonical(a) == canonical(b) }

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
