// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	// TakenOut are plugins of that file which another program took out of ours.
	TakenOut []string `json:"takenOut,omitempty"`
}

// Hash is the hash that [Mark] holds of a file.
func Hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
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

// Join returns podweir's file: n with entry, a JSON object, put behind the last
// plugin, or in the place of a chained bandwidth plugin, because two shapers must
// not work on one annotation. All other values are as they are written in n.
//
// own is the file that podweir has already, or nil. What others put into own, such as the plugin
// of a service mesh, stays in its place. What they took out of it comes back from n, except a
// plugin that is no longer installed: no pod would start. If installed is nil, every plugin
// counts as installed.
//
// It is an error if podweir is in n already.
func Join(n *Network, entry []byte, own *Network, installed func(plugin string) bool) ([]byte, error) {
	if err := isOwn(entry); err != nil {
		return nil, err
	}
	if n.Mark != nil || n.Index(Type) >= 0 {
		return nil, &Error{File: n.File, Err: errors.New("podweir is in the chain already")}
	}
	if err := n.MakesNone(); err != nil {
		return nil, err
	}
	mark := &Mark{Source: n.File, SHA256: Hash(n.raw), Keys: slices.Sorted(maps.Keys(n.members)), TakenOut: n.takenOutOf(own)}
	made := n.withoutGone(mark.TakenOut, installed)
	mark.Plugins = made.Types()
	if at := made.Index(bandwidthType); at >= 0 {
		made.Plugins[at] = Plugin{Type, entry}
	} else {
		made.Plugins = append(made.Plugins, Plugin{Type, entry})
	}
	if made.Index(bandwidthType) >= 0 {
		return nil, &Error{File: n.File, Thing: "plugins", Value: strings.Join(n.Types(), " "), Accepted: "at most one bandwidth plugin"}
	}
	if own != nil {
		made.addForeign(own, mark)
	}
	return made.write(mark)
}

// write returns the file of a network, with a note.
func (n *Network) write(mark *Mark) ([]byte, error) {
	note, err := json.Marshal(mark)
	if err != nil {
		return nil, fmt.Errorf("encode mark: %w", err)
	}
	var b bytes.Buffer
	b.WriteString("{\n")
	for _, key := range slices.Sorted(maps.Keys(n.members)) {
		quoted, err := json.Marshal(key)
		if err != nil {
			return nil, fmt.Errorf("encode key: %w", err)
		}
		fmt.Fprintf(&b, "  %s: %s,\n", quoted, n.members[key])
	}
	entries := make([]string, len(n.Plugins))
	for i, p := range n.Plugins {
		entries[i] = strings.TrimSpace(string(p.Raw))
	}
	fmt.Fprintf(&b, "  \"plugins\": [\n    %s\n  ],\n  %q: %s\n}\n", strings.Join(entries, ",\n    "), markKey, note)
	return b.Bytes(), nil
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

// DropIn returns the bytes of podweir's file in the drop-in directory of a
// network. The errors are those of [Join] for its entry.
func DropIn(entry []byte) ([]byte, error) {
	if err := isOwn(entry); err != nil {
		return nil, err
	}
	return append(bytes.TrimSpace(entry), '\n'), nil
}

// isOwn returns an error for what is no entry of podweir's.
func isOwn(entry []byte) error {
	if p, err := plugin(entry); err != nil || p.Type != Type {
		return fmt.Errorf("podweir's entry: %q is not accepted, want an object of type %s", clipped(entry), Type)
	}
	return nil
}

// DropInFile is the name of podweir's file in a drop-in directory.
const DropInFile = "50-podweir.conf"
