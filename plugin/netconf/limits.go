// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/shaping"
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

// acceptedBurst describes what a burst may be, in the unit of its source.
func acceptedBurst(unit string) string {
	return fmt.Sprintf("a burst of 1 to %s, written as a Kubernetes quantity in %s, or a time from %v to %v "+
		"that is not more at the rate", maxBurstText(unit), unit, minBurstTime, maxBurstTime)
}

func maxBurstText(unit string) string {
	if unit == unitBits {
		return "4G bits"
	}
	return "500M bytes"
}

const (
	unitBits  = "bits"
	unitBytes = "bytes"
)

// source is a value as it was found.
type source struct {
	field, value string
	// unit of a plain number, where the field is a size.
	unit string
	// runtime says that it came from runtimeConfig.
	runtime bool
	// tuning says that it is the pod's wish for how its limit is kept, which
	// never costs it the limit.
	tuning bool
}

// operator reads what belongs to the operator alone and holds for every
// command.
func (p *parser) operator() {
	c := p.config
	if s := p.key("onError"); s != nil {
		switch s.value {
		case "open":
		case "closed":
			c.OnError = FailClosed
		default:
			p.fail(*s, "one of open, closed")
		}
	}
	if s := p.key("logFile"); s != nil {
		if s.value == "" || filepath.IsAbs(s.value) {
			c.LogFile = s.value
		} else {
			p.fail(*s, "an absolute path")
		}
	}
	if s := p.key("logLevel"); s != nil {
		levels := map[string]slog.Level{
			"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
		}
		level, known := levels[s.value]
		if known {
			c.LogLevel = level
		} else {
			p.fail(*s, "one of debug, info, warn, error")
		}
	}
	if raw := p.conf.get("replaceQdisc"); raw != nil {
		if json.Unmarshal(raw, &c.ReplaceQdisc) != nil {
			p.fail(source{field: "replaceQdisc", value: string(raw)}, "true or false")
		}
	}
}

// limits reads everything about rates and queues. What the pod's annotations ask
// for is left out if it cannot be together with the operator's settings.
func (p *parser) limits() {
	p.pod()
	s := p.shaping()
	if bad := shaping.Validate(&s); len(bad) != 0 {
		p.untuned = true
		s = p.shaping()
		if own := shaping.Validate(&s); len(own) != 0 {
			p.errs = append(p.errs, own...)
		} else {
			p.config.Ignored = append(p.config.Ignored, bad...)
		}
	}
	for _, e := range p.config.Ignored {
		p.warn("%v; the node's own setting is used", e)
	}
	if len(p.errs) == 0 {
		p.config.Shaping = s
	}
}

// pod reads what the runtime hands over of the pod.
func (p *parser) pod() {
	p.runtime = p.child(p.conf, "runtimeConfig", "runtimeConfig")
	p.bandwidth = p.child(p.runtime, bandwidthCapability, "runtimeConfig.bandwidth")
	if raw := p.runtime.get(PodAnnotationsCapability); raw != nil {
		if json.Unmarshal(raw, &p.annotations) != nil {
			p.annotations = nil
			p.fail(source{field: "runtimeConfig[" + PodAnnotationsCapability + "]", value: string(raw)},
				"an object of strings")
		}
	}
	p.warnUnknownAnnotations()
}

// shaping reads the limits of both directions.
func (p *parser) shaping() shaping.Config {
	s := shaping.Config{
		Unshaped: p.subnets("unshapedSubnets"),
		Shaped:   p.subnets("shapedSubnets"),
	}
	if len(s.Unshaped) != 0 && len(s.Shaped) != 0 {
		p.fail(source{
			field: "unshapedSubnets, shapedSubnets",
			value: fmt.Sprintf("%d subnets, %d subnets", len(s.Unshaped), len(s.Shaped)),
		}, "one of them")
	}
	for _, d := range shaping.Directions {
		limit, deferred := p.limit(d)
		if d == shaping.Egress {
			s.Egress = limit
		} else {
			s.Ingress = limit
		}
		if deferred != nil {
			s.Deferred = append(s.Deferred, *deferred)
		}
	}
	return s
}

// limit reads one direction: the limit, or who else is left to enforce it. The
// settings are checked where no rate is asked for as well: a bad one is to be
// found before the first pod needs it.
func (p *parser) limit(d shaping.Direction) (*shaping.Limit, *shaping.Deferred) {
	dir := d.String()
	share := func(lowest, highest units.PerMille) func(string) (units.PerMille, error) {
		return func(s string) (units.PerMille, error) { return units.ParsePerMille(s, lowest, highest) }
	}
	l := &shaping.Limit{
		Policy: setting(p, shaping.PolicyStrict, shaping.ParsePolicy, p.annotation("policy"), p.key("policy")),
		Queue: setting(p, shaping.QueueAuto, shaping.ParseQueue,
			p.annotation(dir+"-queue"), p.key(dir+"Queue"), p.key("queue")),
		Mode: setting(p, shaping.ModeAuto, shaping.ParseMode, p.key(dir+"Mode"), p.key("mode")),
		Horizon: setting(p, shaping.DefaultHorizon,
			func(s string) (time.Duration, error) { return units.ParseDuration(s, MinHorizon, MaxHorizon) },
			p.annotation(dir+"-horizon"), p.key(dir+"Horizon"), p.key("horizon")),
		LightShare: setting(p, shaping.DefaultLightShare, share(MinLightShare, MaxLightShare),
			p.annotation("light-share"), p.key("lightShare")),
		HeavyThreshold: setting(p, shaping.DefaultHeavyThreshold, share(MinHeavyThreshold, MaxHeavyThreshold),
			p.annotation("heavy-threshold"), p.key("heavyThreshold")),
		Place: shaping.PlaceAuto,
	}
	if d == shaping.Ingress {
		l.Place = setting(p, shaping.PlaceAuto, shaping.ParsePlace, p.key("ingressPlace"))
	}
	shaper := setting(p, shaping.ShaperPodweir, shaping.ParseShaper, p.key(dir+"Shaper"), p.key("shaper"))
	var annotated bool
	l.Rate, annotated = p.rate(dir)
	l.Burst = p.burst(dir, l.Rate)
	switch {
	case l.Rate == 0:
		return nil, nil
	case annotated && shaper != shaping.ShaperPodweir:
		return nil, &shaping.Deferred{Direction: d, Rate: l.Rate, To: shaper}
	}
	return l, nil
}

// rate is the cap in the order of precedence; 0 means that none is asked for.
// annotated says that it is the pod's: others read the annotation as well, and
// nobody else reads podweir's keys.
func (p *parser) rate(dir string) (chosen units.BitRate, annotated bool) {
	sources := []*source{
		p.value(p.bandwidth, dir+"Rate", "runtimeConfig.bandwidth."+dir+"Rate", true),
		p.annotationNamed("kubernetes.io/"+dir+"-bandwidth", true),
		p.key(dir + "Rate"),
	}
	found := false
	for i, s := range sources {
		if s == nil {
			continue
		}
		v, err := units.ParseQuantity(s.value)
		if err == nil && v == 0 && i != 1 {
			continue // in the CNI's own keys 0 is how nothing is asked for
		}
		if found && s.runtime {
			continue // the same wish, handed over twice
		}
		rate := units.BitRate(v)
		switch {
		case err != nil || rate < units.MinRate || (rate > units.MaxRate && !s.runtime):
			p.fail(*s, units.AcceptedRate)
			found = true
			continue
		case rate > units.MaxRate:
			p.warn("%s: %s is above the highest rate, clamped to %v", s.field, quoted(s.value), units.MaxRate)
			rate = units.MaxRate
		}
		if !found {
			chosen, annotated, found = rate, s.runtime, true
		}
	}
	return chosen, annotated
}

// burst is the burst in the order of precedence; 0 means the default. Where
// rate is 0 it is checked, but not used.
func (p *parser) burst(dir string, rate units.BitRate) units.Bytes {
	annotation := p.annotation(dir + "-burst")
	if annotation != nil {
		annotation.unit = unitBytes
	}
	sources := []*source{
		annotation,
		p.value(p.bandwidth, dir+"Burst", "runtimeConfig.bandwidth."+dir+"Burst", true),
		p.key(dir + "Burst"),
	}
	chosen := units.Bytes(0)
	for i, s := range sources {
		if s == nil {
			continue
		}
		size, err := burstOf(s, rate)
		if err != nil && i > 0 && s.value == "0" && !p.hasRate(dir, s.runtime) {
			continue // rate 0 and burst 0: nothing is asked for
		}
		if err != nil {
			p.fail(*s, err.Error())
			continue
		}
		if chosen == 0 {
			chosen = size
		}
	}
	return chosen
}

// dockerFiller is the burst in bits that cri-dockerd, and dockershim before it,
// send when they were not asked for one (math.MaxInt32, network/cni/cni.go). Those
// of containerd and CRI-O are above [units.MaxBurst].
const dockerFiller = 1<<31 - 1

// burstOf reads a burst. A time ends in s, which no quantity does.
func burstOf(s *source, rate units.BitRate) (units.Bytes, error) {
	unit := s.unit
	if unit == "" {
		unit = unitBits
	}
	bad := errors.New(acceptedBurst(unit))
	if strings.HasSuffix(s.value, "s") {
		d, err := units.ParseDuration(s.value, minBurstTime, maxBurstTime)
		if err != nil || rate.Bytes(d) > units.MaxBurst {
			return 0, bad
		}
		return max(rate.Bytes(d), 1), nil
	}
	v, err := units.ParseSize(s.value)
	if err != nil {
		return 0, bad
	}
	if s.runtime && v == dockerFiller {
		return 0, nil
	}
	size := units.Bytes(v)
	if unit == unitBits {
		size = units.BytesFromBits(v)
	}
	if size > units.MaxBurst {
		if s.runtime {
			return 0, nil // a filler: the runtime was not asked for a burst
		}
		return 0, bad
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

// subnets reads a list of CIDRs.
func (p *parser) subnets(key string) []netip.Prefix {
	const accepted = "a list of at most 256 subnets in CIDR form such as 10.0.0.0/8 or fd00::/8"
	raw := p.conf.get(key)
	if raw == nil {
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil || len(list) > MaxSubnets {
		p.fail(source{field: key, value: string(raw)}, accepted)
		return nil
	}
	out := make([]netip.Prefix, 0, len(list))
	for _, s := range list {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			p.fail(source{field: key, value: s}, accepted)
			continue
		}
		if a := prefix.Addr(); a.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
		}
		out = append(out, prefix.Masked())
	}
	return out
}
