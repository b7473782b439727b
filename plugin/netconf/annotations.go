// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
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

	// Near are the first MaxUnknownNames that may be meant to ask for a limit, by name.
	Near []terms.Misspelt
}

// KeepAnnotations returns what podweir keeps of annotations.
func KeepAnnotations[T ~string](all map[string]T) PodAnnotations {
	var a PodAnnotations
	for name, value := range all {
		if isRead(name) {
			a.set(name, string(value))
		} else {
			a.unread(name)
		}
	}
	return a
}

// unread keeps what is to be told of an annotation that podweir does not read.
func (a *PodAnnotations) unread(name string) {
	if key, ours := strings.CutPrefix(name, AnnotationDomain); ours {
		a.unknown(name)
		if ofNetworkAlone(key) {
			return
		}
	}
	near := terms.Nearest(name, RateAnnotations)
	if near == "" {
		return
	}
	m := terms.Misspelt{Direction: DirectionOf(near), Name: strings.Clone(name), Near: near}
	at, there := slices.BinarySearchFunc(a.Near, m, func(a, b terms.Misspelt) int { return strings.Compare(a.Name, b.Name) })
	if !there {
		a.Near = slices.Insert(a.Near, at, m)
		a.Near = a.Near[:min(len(a.Near), MaxUnknownNames)]
	}
}

// Misspelt are annotations that nobody reads and that look like one that asks for a limit, of
// directions for which no other annotation does.
func (a *PodAnnotations) Misspelt() []terms.Misspelt {
	return slices.DeleteFunc(slices.Clone(a.Near), func(m terms.Misspelt) bool {
		return slices.ContainsFunc(RateAnnotations, func(name string) bool {
			_, asks := a.Values[name]
			return asks && DirectionOf(name) == m.Direction
		})
	})
}

// DirectionOf is the direction of one of [RateAnnotations].
func DirectionOf(name string) terms.Direction {
	if name == EgressAnnotation || name == OwnEgressAnnotation {
		return terms.Egress
	}
	return terms.Ingress
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

// Equal says whether two pods ask for the same, or seem to. Other unknown annotations ask for
// nothing.
func (a *PodAnnotations) Equal(o *PodAnnotations) bool {
	return maps.Equal(a.known(), o.known()) && slices.Equal(a.Near, o.Near)
}

func (a *PodAnnotations) known() map[string]string {
	if a.Unknown == 0 {
		return a.Values
	}
	known := maps.Clone(a.Values)
	maps.DeleteFunc(known, func(name, _ string) bool { return !isRead(name) })
	return known
}

// Text is a string of JSON of which no more is kept than [Cut] keeps, nor ever copied: a pod's
// author may write long ones.
type Text string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Text) UnmarshalText(text []byte) error {
	*t = Text(text[:min(len(text), MaxAnnotationBytes+1)])
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *PodAnnotations) UnmarshalJSON(data []byte) error {
	var all map[string]Text
	err := json.Unmarshal(data, &all)
	*a = KeepAnnotations(all)
	return err
}

// What a pod's own annotations may ask for, so that whoever writes them tunes the
// limit and does not lift it. The operator's own settings are bounds too: a pod may
// have what the node has anyway, or what podAnnotations lets it have.
const (
	// MaxPodBurst is the highest burst as time at the rate: ten times the default.
	// The second in which it leaves has 1.1 times the rate.
	MaxPodBurst = 100 * time.Millisecond
	// MaxElephantsThreshold is the highest heavyThreshold under the policy
	// elephants: a heavy flow is held to the rate, and if that is not well above the
	// threshold the flow counts as light again, which nothing limits. At 100% nothing
	// stays heavy.
	MaxElephantsThreshold units.PerMille = 500
)

// podRules are what the operator lets pods set.
type podRules struct {
	// names are the annotations that are read, without the domain.
	names []string
	// elephants says that a pod may choose that policy, which is otherwise the operator's.
	elephants bool
	// longest are the bounds of bursts, where the operator gave one.
	longest map[string]time.Duration
}

// podRules reads podAnnotations. An item that cannot be read opens nothing.
func (p *parser) podRules() podRules {
	const key = "podAnnotations"
	// Whoever observes only has no limit: that is nothing for pods unless the operator says so.
	preset := podRules{names: slices.DeleteFunc(slices.Clone(annotationKeys), func(k string) bool { return k == enforceAnnotation })}
	raw := p.conf.get(key)
	if raw == nil {
		return preset
	}
	var items []string
	if json.Unmarshal(raw, &items) != nil {
		p.ignore(source{field: key, value: string(raw)}, "a list of annotations such as policy or policy=elephants")
		return preset
	}
	rules := podRules{longest: make(map[string]time.Duration)}
	for _, item := range items {
		if err := rules.add(strings.TrimPrefix(item, AnnotationDomain)); err != nil {
			p.ignore(source{field: key, value: item}, err.Error())
		}
	}
	return rules
}

// add takes one item: an annotation, or an annotation and how far it may go.
func (r *podRules) add(item string) error {
	name, value, widened := strings.Cut(item, "=")
	if !slices.Contains(annotationKeys, name) {
		return errors.New("one of " + strings.Join(annotationKeys, ", ") + ", or one of them with a value as in policy=elephants")
	}
	if widened {
		if err := r.widen(name, value); err != nil {
			return err
		}
	}
	r.names = append(r.names, name)
	return nil
}

// widen lets an annotation go beyond its bound.
func (r *podRules) widen(name, value string) error {
	switch {
	case strings.HasSuffix(name, "-rate"):
		return errors.New(name + " without a value: its bound is maxRate")
	case name == "policy" && value == terms.PolicyElephants.String():
		r.elephants = true
		return nil
	case name == "policy":
		return errors.New("policy=elephants")
	case strings.HasSuffix(name, "-burst"):
		longest, err := units.ParseDuration(value, minBurstTime, maxBurstTime)
		if bad, ok := errors.AsType[*units.ValueError](err); ok {
			return errors.New(name + "= and " + bad.Accepted)
		}
		r.longest[name] = longest
		return err
	}
	return errors.New(name + " without a value: it has no bound")
}

// policy reads a pod's policy beside the node's own. Elephants leaves all light flows
// without a limit.
func (r *podRules) policy(own terms.Policy) func(string) (terms.Policy, error) {
	return func(s string) (terms.Policy, error) {
		v, err := terms.ParsePolicy(s)
		if err == nil && v == terms.PolicyElephants && own != v && !r.elephants {
			err = &units.ValueError{Value: s, Accepted: "one of strict, flat; the node's podAnnotations does not have policy=elephants"}
		}
		return v, err
	}
}

// burst returns an error if a pod's burst is beyond its bound, which is also the
// node's own burst.
func (r *podRules) burst(name string, size, own units.Bytes, rate units.BitRate) error {
	longest := max(MaxPodBurst, r.longest[name])
	if rate == 0 || size <= max(rate.Bytes(longest), own) {
		return nil
	}
	return fmt.Errorf("a burst of at most %v of the rate, %v; the node's podAnnotations does not let pods have more",
		longest, max(rate.Bytes(longest), own))
}
