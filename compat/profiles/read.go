// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/podweir/podweir/plugin/terms"
)

//go:embed profiles.yaml
var file []byte

// read returns the profiles of profiles.yaml; the last one is [Other]. A test reads them
// all, so what does not fit there is a fault of the build.
var read = sync.OnceValue(func() (all []Profile) {
	d := yaml.NewDecoder(bytes.NewReader(file))
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil {
		panic(fmt.Sprintf("profiles.yaml: %v", err))
	}
	return all
})

// All returns every profile, the more specific ones of a family first. The
// caller may keep and change the profiles, not what they point to.
func All() []*Profile {
	all := read()
	out := make([]*Profile, len(all)-1)
	for i := range out {
		p := all[i]
		out[i] = &p
	}
	return out
}

// Other is the profile of a CNI that is not known: podweir attaches where it does
// no harm whatever the CNI does. It is not in [All].
func Other() *Profile {
	all := read()
	p := all[len(all)-1]
	return &p
}

// Shaper is a [terms.Shaper] that is read by its name.
type Shaper terms.Shaper

// word reads one of the words of a vocabulary, by what its values are called.
func word[T interface {
	~uint8
	fmt.Stringer
}](text string, first, last T) (T, error) {
	for v := first; v <= last; v++ {
		if v.String() == text {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%q is not known", text)
}

// unknown refuses keys that nothing reads: the decoder does so for no type with an UnmarshalYAML.
func unknown(keys map[string]any) error {
	if len(keys) > 0 {
		return fmt.Errorf("keys that are not known: %v", slices.Sorted(maps.Keys(keys)))
	}
	return nil
}

// UnmarshalText reads the name of a shaper.
func (s *Shaper) UnmarshalText(text []byte) error {
	is, err := terms.ParseShaper(string(text))
	*s = Shaper(is)
	return err
}

// UnmarshalYAML reads a hook by the names of package terms.
func (h *HookUse) UnmarshalYAML(n *yaml.Node) error {
	var raw struct {
		Kind, Hook, Note string
		Programs         []string
		EndsChain        Answer         `yaml:"endsChain"`
		Other            map[string]any `yaml:",inline"`
	}
	if err := n.Decode(&raw); err != nil {
		return err
	}
	h.Programs, h.EndsChain, h.Note = raw.Programs, raw.EndsChain, raw.Note
	var kind, hook error
	h.Kind, kind = word(raw.Kind, terms.HookKindAuto, terms.HookKindOVS)
	h.Direction, hook = word(raw.Hook, terms.HookEgress, terms.HookIngress)
	return errors.Join(unknown(raw.Other), kind, hook)
}

// UnmarshalYAML reads a place by the names of package terms.
func (a *Attach) UnmarshalYAML(n *yaml.Node) (err error) {
	var raw struct {
		Place, Why string
		Refused    map[string]string
		Other      map[string]any `yaml:",inline"`
	}
	if err := n.Decode(&raw); err != nil {
		return err
	}
	a.Why = raw.Why
	if raw.Place != "" {
		a.Place, err = terms.ParsePlace(raw.Place)
	}
	for name, why := range raw.Refused {
		mode, bad := terms.ParseMode(name)
		err = errors.Join(err, bad)
		if a.Refused == nil {
			a.Refused = map[terms.Mode]string{}
		}
		a.Refused[mode] = why
	}
	return errors.Join(unknown(raw.Other), err)
}
