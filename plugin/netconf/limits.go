// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// The ranges that are accepted; docs/reference/configuration.md repeats them.
const (
	// MinHorizon and MaxHorizon: less than 1 ms is less than a scheduler's
	// delay, more than 1 s is bufferbloat.
	MinHorizon = time.Millisecond
	MaxHorizon = time.Second
	// MinLightShare and MaxLightShare: a heavy packet waits up to
	// horizon / (1 - lightShare).
	MinLightShare units.PerMille = 10
	MaxLightShare units.PerMille = 990
	// MinHeavyThreshold is above what a cell of the sketch holds of other
	// flows, 0.2 % of the cap (bpf/lib/abi.h).
	MinHeavyThreshold units.PerMille = 5
	MaxHeavyThreshold                = units.Whole
	// MaxSubnets bounds the lists of subnets.
	MaxSubnets = 256
	// The range of a burst that is given as a time.
	minBurstTime = time.Microsecond
	maxBurstTime = 10 * time.Second
)

// errBurst describes what a burst may be. It is no variable: to format one is a part of each ADD's start.
func errBurst() error {
	return fmt.Errorf("a burst of 1 to 4G bits, written as a Kubernetes quantity in bits, or a time from %v to %v "+
		"that is not more at the rate", minBurstTime, maxBurstTime)
}

// source is a value as it was found.
type source struct {
	field, value string
	// origin says who wrote it.
	origin origin
	// mayBeNone says that the operator may want none.
	mayBeNone bool
	// runtime says that it came from runtimeConfig, or from an annotation that the
	// runtime reads, too.
	runtime bool
	// tuning says that it is the pod's wish for how its limit is kept.
	tuning bool
	// bad says what is accepted where the value is neither text nor a number, ""
	// where it is.
	bad string
}

// origin is who wrote a value.
type origin uint8

const (
	// ofNode is the operator, in podweir's entry in the chain.
	ofNode origin = iota
	// ofNamespace is the operator, on the pod's Namespace.
	ofNamespace
	// ofPod is the pod's author.
	ofPod
)

// operator reads what belongs to the operator alone and holds for every
// command.
func (p *parser) operator() {
	c := p.config
	if setting(p, false, choice("closed", "open", "closed"), p.key("onError")) {
		c.OnError = FailClosed
	}
	c.LogLevel = setting(p, c.LogLevel, func(s string) (level slog.Level, err error) {
		if _, err = choice(s, "debug", "info", "warn", "error")(s); err == nil {
			err = level.UnmarshalText([]byte(s))
		}
		return level, err
	}, p.key("logLevel"))
	if raw := p.conf.get("replaceQdisc"); raw != nil {
		if json.Unmarshal(raw, &c.ReplaceQdisc) != nil {
			p.ignore(source{field: "replaceQdisc", value: string(raw)}, "true or false")
		}
	}
}

// limits reads everything about rates and queues.
func (p *parser) limits() {
	p.pod()
	p.rules = p.podRules()
	s := p.shaping()
	for _, e := range settle(&s) {
		p.ignoreError(e, "podweir's default is used")
	}
	s.Notes = fewNotes(p.notes)
	p.config.Shaping = s
}

// settle gives up what of the operator's settings cannot be together: the queue,
// which is the lesser wish, and if that is not enough the mode. It returns what
// contradicted each other.
func settle(s *shaping.Config) []*FieldError {
	var all []*FieldError
	for _, d := range terms.Directions {
		l := s.Limit(d)
		one := &shaping.Config{}
		one.SetLimit(d, l)
		bad := shaping.Validate(one)
		if len(bad) == 0 {
			continue
		}
		all = append(all, bad...)
		if l.Queue = terms.QueueAuto; len(shaping.Validate(one)) != 0 {
			l.Mode = terms.ModeAuto
		}
	}
	return all
}

// pod reads what the runtime hands over of the pod.
func (p *parser) pod() {
	p.runtime = p.child(p.conf, "runtimeConfig", "runtimeConfig")
	p.bandwidth = p.child(p.runtime, bandwidthCapability, "runtimeConfig.bandwidth")
	if raw := p.runtime.get(PodAnnotationsCapability); raw != nil {
		if json.Unmarshal(raw, &p.annotations) != nil {
			p.annotations = PodAnnotations{}
			s := source{field: "runtimeConfig[" + PodAnnotationsCapability + "]", value: string(raw)}
			addError(&p.unread, s.fieldError("an object of strings"))
		}
	}
	p.warnUnknownAnnotations()
}

// shaping reads the limits of both directions.
func (p *parser) shaping() shaping.Config {
	s := shaping.Config{
		Unshaped: p.subnets("unshapedSubnets", false),
		Shaped:   p.subnets("shapedSubnets", true),
		HostTCX:  setting(p, false, choice(hookTCX, "auto", hookTCX), p.key("hostHook")),
		PodTCX:   setting(p, false, choice(hookTCX, "auto", hookTCX, "clsact"), p.key("podHook")),
		Shared:   setting(p, false, choice("shared", "each", "shared"), p.key("interfaces")),
		Observe: setting(p, terms.EnforceLimit, terms.ParseEnforce,
			p.annotation(enforceAnnotation), p.ofNamespace(enforceAnnotation), p.key("enforce")) == terms.EnforceObserve,
	}
	if len(s.Unshaped) != 0 && len(s.Shaped) != 0 {
		both := source{
			field: "unshapedSubnets, shapedSubnets",
			value: fmt.Sprintf("%d subnets, %d subnets", len(s.Unshaped), len(s.Shaped)),
		}
		p.ignoreError(both.fieldError("one of them"), shapesAll)
		s.Unshaped, s.Shaped = nil, nil
	}
	for _, d := range terms.Directions {
		limit, deferred := p.limit(d)
		s.SetLimit(d, limit)
		if deferred != nil {
			s.Deferred = append(s.Deferred, *deferred)
		}
		if decision, ok := p.decided[d]; ok && limit != nil {
			s.Decisions = append(s.Decisions, decision)
		}
	}
	return s
}

// limit reads one direction: the limit, or who else is left to enforce it. The
// settings are checked where no rate is requested as well: a bad one is to be
// found before the first pod needs it.
func (p *parser) limit(d terms.Direction) (*shaping.Limit, *shaping.Deferred) {
	dir := d.String()
	share := func(lowest, highest units.PerMille) func(string) (units.PerMille, error) {
		return func(s string) (units.PerMille, error) { return units.ParsePerMille(s, lowest, highest) }
	}
	horizon := func(s string) (time.Duration, error) { return units.ParseDuration(s, MinHorizon, MaxHorizon) }
	l := shaping.DefaultLimit(0)
	l.Policy = setting(p, l.Policy, terms.ParsePolicy, p.key("policy"))
	l.Queue = setting(p, l.Queue, terms.ParseQueue, p.key(dir+"Queue"), p.key("queue"))
	l.Mode = setting(p, l.Mode, terms.ParseMode, p.key(dir+"Mode"), p.key("mode"))
	l.Horizon = setting(p, l.Horizon, horizon, p.key(dir+"Horizon"), p.key("horizon"))
	l.LightShare = setting(p, l.LightShare, share(MinLightShare, MaxLightShare), p.key("lightShare"))
	highest := MaxHeavyThreshold
	if l.Policy == terms.PolicyElephants {
		highest = MaxElephantsThreshold
	}
	l.HeavyThreshold = setting(p, l.HeavyThreshold, share(MinHeavyThreshold, highest), p.key("heavyThreshold"))
	l.Policy = setting(p, l.Policy, p.rules.policy(l.Policy), p.annotation("policy"))
	if l.Policy == terms.PolicyElephants { // the node's own may be meant for another policy
		l.HeavyThreshold = min(l.HeavyThreshold, MaxElephantsThreshold)
	}
	if d == terms.Ingress {
		l.Place = setting(p, l.Place, terms.ParsePlace, p.key("ingressPlace"))
	} else {
		l.NoCeiling = !setting(p, true, choice("on", "on", "off"), p.key("egressCeiling"))
		l.Packets = setting(p, shaping.PacketsAuto, shaping.ParsePackets, p.key("smallPackets"))
	}
	shaper := setting(p, terms.ShaperPodweir, terms.ParseShaper, p.key(dir+"Shaper"), p.key("shaper"))
	l.Rate, l.Standard = p.rate(d)
	l.Group = p.groupRate(d).rate
	l.Standard = l.Standard && (l.Group == 0 || shaper == terms.ShaperPodweir) // nobody else holds a group
	l.Burst = p.burst(dir, l.Rate)
	switch {
	case l.Rate == 0:
		return nil, nil
	case l.Standard && shaper != terms.ShaperPodweir:
		return nil, &shaping.Deferred{Direction: d, Rate: l.Rate, To: shaper}
	}
	return l, nil
}

// hookTCX is the value of hostHook and podHook that allows TCX alone.
const hookTCX = "tcx"

// choice reads one of some words, and says whether it is the one.
func choice(one string, words ...string) func(string) (is bool, err error) {
	return func(s string) (bool, error) {
		if !slices.Contains(words, s) {
			return false, &units.ValueError{Value: s, Accepted: "one of " + strings.Join(words, ", ")}
		}
		return s == one, nil
	}
}

// burst is the burst in the order of precedence; 0 means the default. Where
// rate is 0 it is checked, but not used.
func (p *parser) burst(dir string, rate units.BitRate) units.Bytes {
	annotation := p.annotation(dir + "-burst")
	sources := []*source{
		annotation,
		p.value(p.bandwidth, dir+"Burst", "runtimeConfig.bandwidth."+dir+"Burst", true),
		p.key(dir + "Burst"),
	}
	chosen, own := units.Bytes(0), units.Bytes(0)
	if s := sources[2]; s != nil {
		own, _ = burstOf(s, rate)
	}
	for i, s := range sources {
		if s == nil {
			continue
		}
		size, err := burstOf(s, rate)
		if err == nil && s == annotation {
			err = p.rules.burst(dir+"-burst", size, own, rate)
		}
		if err != nil && i > 0 && s.value == "0" && !p.hasRate(dir, s.runtime) {
			continue // rate 0 and burst 0: nothing is requested
		}
		if err != nil {
			p.ignore(*s, err.Error())
			continue
		}
		if chosen == 0 {
			chosen = size
		}
	}
	return chosen
}

// dockerFiller is the burst in bits that cri-dockerd, and dockershim before it,
// send when they were not asked for one: math.MaxInt32 in buildCNIRuntimeConf of
// network/cni/cni.go (github.com/Mirantis/cri-dockerd; pkg/kubelet/dockershim in
// Kubernetes up to 1.23). Those of containerd (2^32-1) and CRI-O are above
// [units.MaxBurst].
const dockerFiller = 1<<31 - 1

// burstOf reads a burst. A time ends in s, which no quantity does.
func burstOf(s *source, rate units.BitRate) (units.Bytes, error) {
	if s.bad != "" {
		return 0, errors.New(s.bad)
	}
	if strings.HasSuffix(s.value, "s") {
		d, err := units.ParseDuration(s.value, minBurstTime, maxBurstTime)
		if err != nil || rate.Bytes(d) > units.MaxBurst {
			return 0, errBurst()
		}
		return max(rate.Bytes(d), 1), nil
	}
	v, err := units.ParseSize(s.value)
	if err != nil {
		return 0, errBurst()
	}
	if s.runtime && v == dockerFiller {
		return 0, nil
	}
	size := units.BytesFromBits(v)
	if size > units.MaxBurst {
		if s.runtime {
			return 0, nil // a filler: the runtime was not asked for a burst
		}
		return 0, errBurst()
	}
	return size, nil
}

// hasRate says whether the source that a burst came from has a rate.
func (p *parser) hasRate(dir string, runtime bool) bool {
	s := p.key(dir + "Rate")
	if runtime {
		s = p.value(p.bandwidth, dir+"Rate", "", true)
	}
	if s == nil {
		return false
	}
	v, err := units.ParseQuantity(s.value)
	return err != nil || v != 0
}

// What becomes of exempt networks that cannot be read: what podweir does not know
// to be exempt, it shapes.
const (
	shapesAll = "all traffic is shaped"
	shapesIt  = "traffic with it is shaped"
)

// subnets reads a list of CIDRs. Of the networks that alone are shaped none is
// taken if one is bad: it would be left without a limit.
func (p *parser) subnets(key string, alone bool) []netip.Prefix {
	const accepted = "a list of at most 256 subnets in CIDR form such as 10.0.0.0/8 or fd00::/8"
	raw := p.conf.get(key)
	if raw == nil {
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil || len(list) > MaxSubnets {
		s := source{field: key, value: string(raw)}
		p.ignoreError(s.fieldError(accepted), shapesAll)
		return nil
	}
	var out []netip.Prefix
	for _, text := range list {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			s := source{field: key, value: text}
			if alone {
				p.ignoreError(s.fieldError(accepted), shapesAll)
				return nil
			}
			p.ignoreError(s.fieldError(accepted), shapesIt)
			continue
		}
		if a := prefix.Addr(); a.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
		}
		out = append(out, prefix.Masked())
	}
	return out
}
