// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// desired is what the pod asks for, read by the code that reads it for ADD: the
// node's entry in the conflist with the pod's annotations as a runtime hands
// them over, and what is set on its namespace. Beside an error the configuration has what could be read, or is nil.
func (l *look) desired() (*netconf.Config, error) {
	entry, err := l.cfg.NetConf()
	if err != nil {
		return nil, fmt.Errorf("read the node's configuration: %w", err)
	}
	rates, _ := l.rates()
	conf, err := netconf.ParseEntry(entry, l.pod.Annotations, rates)
	l.warnings, l.ignored, l.capped = conf.Warnings, conf.Ignored, conf.Capped
	return conf, err
}

// withPrior fills in what could not be read of a configuration: a direction that has no
// limit, and is not left to others, is as it was before.
func withPrior(read, prior *shaping.Config) shaping.Config {
	all := *read
	all.Deferred, all.Notes = slices.Clone(read.Deferred), slices.Clone(read.Notes)
	for _, d := range terms.Directions {
		of := func(o shaping.Deferred) bool { return o.Direction == d }
		if read.Limit(d) != nil || slices.ContainsFunc(read.Deferred, of) {
			continue
		}
		all.SetLimit(d, prior.Limit(d))
		if i := slices.IndexFunc(prior.Deferred, of); i >= 0 {
			all.Deferred = append(all.Deferred, prior.Deferred[i])
		}
		if prior.Limit(d) == nil {
			continue
		}
		for i, note := range all.Notes {
			if why, ok := strings.CutPrefix(note, d.String()+" has no limit: "); ok { // a note of netconf's
				all.Notes[i] = d.String() + " keeps the limit from before: " + why
			}
		}
	}
	return all
}

// noLimit says that a configuration lacks the limit of a direction whose rate cannot be
// read.
func noLimit(c *netconf.Config) bool {
	return slices.ContainsFunc(c.Unread, func(d terms.Direction) bool { return c.Shaping.Limit(d) == nil })
}

// invalid answers a configuration that cannot be read: what was there stays,
// and is kept as it was. The direction whose rate can be read gets its limit; known
// says that it is what the pod asks for now.
func (l *look) invalid(ctx context.Context, node *engine.Node, conf *netconf.Config, have []attached, known bool, cause error) {
	stays := "the pod is not shaped"
	l.unread = true
	switch {
	case len(have) > 0:
		stays = "the limit from before stays"
		all := l.keepPrior(ctx, node, conf, have, known)
		if l.Kept = all && l.Err == nil; !all {
			stays = "the other direction is limited"
		}
	case conf != nil && conf.Shaping.Limited():
		if l.attach(ctx, conf, cause, nil); l.Err != nil || l.Outcome == Waiting {
			return
		}
		stays = "the other direction is limited"
	}
	l.event = nil
	l.fail(cause)
	l.Reason = stays
	l.warn(l.reasonOf(), cause.Error()+"; "+stays)
}

// keepPrior keeps what the pod has while its configuration cannot be read, and says whether
// each direction of its first interface that should have a limit has the one from before.
func (l *look) keepPrior(ctx context.Context, node *engine.Node, conf *netconf.Config, have []attached, known bool) (all bool) {
	if conf == nil {
		l.repair(ctx, node, have)
		return true
	}
	all = !noLimit(conf)
	for _, a := range have {
		merged := *conf
		merged.Shaping = withPrior(&conf.Shaping, askedOf(a.records[0]))
		all = all || a.id.IfName == engine.MainIfName && !noLimit(&merged)
		if own, _ := ofPod(conf.Name, []attached{a}); known && conf.Shaping.Limited() && len(own) > 0 {
			l.ensure(ctx, node, &merged, a)
		} else {
			l.repair(ctx, node, []attached{a})
		}
	}
	return all
}
