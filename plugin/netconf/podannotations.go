// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// What a pod's own annotations may ask for, so that whoever writes them tunes the
// limit and does not lift it. The operator's own settings are bounds too: a pod may
// have what the node has anyway, or what podAnnotations lets it have.
const (
	// MaxPodBurst is the highest burst as time at the rate: ten times the default.
	// The second in which it leaves has 1.1 times the rate.
	MaxPodBurst = 100 * time.Millisecond
	// MaxPodHorizon is the highest horizon. It is more credit where the limit is
	// policed, and the node's memory where it is queued.
	MaxPodHorizon = 100 * time.Millisecond
	// MaxElephantsThreshold is the highest heavyThreshold under the policy
	// elephants, for the operator as well: a heavy flow is held to the rate, and if
	// that is not well above the threshold the flow counts as light again, which
	// nothing limits. At 100% nothing stays heavy.
	MaxElephantsThreshold units.PerMille = 500
)

// podRules are what the operator lets pods set.
type podRules struct {
	// names are the annotations that are read, without the domain.
	names []string
	// free are those whose value may be the one that is otherwise the operator's:
	// elephants, and none for a queue.
	free []string
	// longest are the bounds of bursts and horizons, where the operator gave one.
	longest map[string]time.Duration
	// threshold is the highest heavy-threshold under elephants, 0 if the operator
	// gave none.
	threshold units.PerMille
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
	bad := errors.New(name + " without a value: it has no bound")
	switch {
	case strings.HasSuffix(name, "-rate"):
		bad = errors.New(name + " without a value: its bound is maxRate")
	case name == "policy":
		bad = errors.New("policy=elephants")
		if value == terms.PolicyElephants.String() {
			r.free, bad = append(r.free, name), nil
		}
	case strings.HasSuffix(name, "-queue"):
		bad = errors.New(name + "=none")
		if value == terms.QueueNone.String() {
			r.free, bad = append(r.free, name), nil
		}
	case strings.HasSuffix(name, "-burst"):
		r.longest[name], bad = units.ParseDuration(value, minBurstTime, maxBurstTime)
	case strings.HasSuffix(name, "-horizon"):
		r.longest[name], bad = units.ParseDuration(value, MinHorizon, MaxHorizon)
	case name == "heavy-threshold":
		r.threshold, bad = units.ParsePerMille(value, MinHeavyThreshold, MaxElephantsThreshold)
	}
	if e, ok := errors.AsType[*units.ValueError](bad); ok {
		return errors.New(name + "= and " + e.Accepted)
	}
	return bad
}

// only narrows what a parser accepts.
func only[T any](parse func(string) (T, error), may func(T) bool, accepted string) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := parse(s)
		if err == nil && !may(v) {
			err = &units.ValueError{Value: s, Accepted: accepted}
		}
		return v, err
	}
}

// policy reads a pod's policy beside the node's own. Elephants leaves all light flows
// without a limit.
func (r *podRules) policy(own terms.Policy) func(string) (terms.Policy, error) {
	may := func(v terms.Policy) bool {
		return v != terms.PolicyElephants || own == v || slices.Contains(r.free, "policy")
	}
	return only(terms.ParsePolicy, may, "one of strict, flat; the node's podAnnotations does not have policy=elephants")
}

// queue reads a pod's queue beside the node's own. Policing has a credit of a
// quarter of a second.
func (r *podRules) queue(name string, own terms.Queue) func(string) (terms.Queue, error) {
	may := func(v terms.Queue) bool {
		return v != terms.QueueNone || own == v || slices.Contains(r.free, name)
	}
	return only(terms.ParseQueue, may, "one of auto, tbf; the node's podAnnotations does not have "+name+"=none")
}

// horizon reads a pod's horizon beside the node's own.
func (r *podRules) horizon(name string, own time.Duration) func(string) (time.Duration, error) {
	highest := max(own, MaxPodHorizon, r.longest[name])
	return func(s string) (time.Duration, error) { return units.ParseDuration(s, MinHorizon, highest) }
}

// heavyThreshold reads a pod's threshold beside the node's own, under the policy that
// it gets. A higher one frees more flows of the limit under elephants, and none under
// the others.
func (r *podRules) heavyThreshold(policy terms.Policy, own units.PerMille) func(string) (units.PerMille, error) {
	highest := MaxHeavyThreshold
	if policy == terms.PolicyElephants {
		highest = max(min(own, MaxElephantsThreshold), r.threshold)
	}
	return func(s string) (units.PerMille, error) { return units.ParsePerMille(s, MinHeavyThreshold, highest) }
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
