// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
)

// Others rewrite the first file of the directory to put a plugin of theirs into it. What
// they put into podweir's file is part of it from then on.

// noted says what of podweir's own file is not from others: what podweir noted when it
// made the file, and the plugins and keys that the original has now. Without a note, as in
// files of people, a bandwidth plugin is taken for one of the original's.
func noted(own *Network, plugins, keys []string) (allPlugins, allKeys []string) {
	plugins, keys = append(slices.Clip(plugins), Type), append(slices.Clip(keys), "name", "cniVersion")
	if own.Mark != nil && own.Mark.Plugins != nil {
		return append(plugins, own.Mark.Plugins...), append(keys, own.Mark.Keys...)
	}
	return append(plugins, bandwidthType), keys
}

// Foreign lists the types of the plugins that others put into podweir's own file.
func (n *Network) Foreign(original *Network) []string {
	plugins, _ := noted(n, original.Types(), nil)
	return slices.DeleteFunc(n.Types(), func(t string) bool { return slices.Contains(plugins, t) })
}

// Calls says what of podweir's the plugins of another party's network call by themselves, as
// Multus does, which makes its file of the first one in the directory: entry says that
// podweir-cni is in a chain within theirs, files are those of podweir's that they name.
func (n *Network) Calls() (entry bool, files []string) {
	var look func(v any)
	look = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			entry = entry || v["type"] == Type
			for _, key := range slices.Sorted(maps.Keys(v)) {
				look(v[key])
			}
		case []any:
			for _, one := range v {
				look(one)
			}
		case string:
			if name := path.Base(v); strings.HasPrefix(name, Prefix) {
				files = append(files, name)
			}
		}
	}
	for i := range n.Plugins {
		var v any
		_ = json.Unmarshal(n.Plugins[i].Raw, &v) // it was read already
		look(v)
	}
	return entry, files
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

// addForeign adds to what podweir makes of an original what others put into its own
// file: each plugin behind the one that it stands behind now.
func (n *Network) addForeign(own *Network, mark *Mark) {
	plugins, keys := noted(own, mark.Plugins, mark.Keys)
	at := 0
	for _, p := range own.Plugins {
		if !slices.Contains(plugins, p.Type) {
			n.Plugins = slices.Insert(n.Plugins, at, p)
			at++
			continue
		}
		if found := n.Index(p.Type); found >= 0 {
			at = found + 1
		}
	}
	for key, raw := range own.members {
		if !slices.Contains(keys, key) {
			n.members[key] = raw
		}
	}
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
func (n *Network) withoutGone(plugins []string, installed func(plugin string) bool) *Network {
	out := *n
	out.members = maps.Clone(n.members)
	out.Plugins = slices.DeleteFunc(slices.Clone(n.Plugins), func(p Plugin) bool {
		return slices.Contains(plugins, p.Type) && installed != nil && !installed(p.Type)
	})
	return &out
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
	for key, raw := range n.members {
		out[key] = canonical(raw)
	}
	if n.Mark != nil {
		mark := *n.Mark
		mark.SHA256, mark.Keys = "", nil // what the members are the members show
		raw, _ := json.Marshal(mark)     // it has strings only
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
