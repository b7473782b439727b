// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"fmt"
	"slices"
	"strings"

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
		if d == terms.Egress {
			all.Egress = prior.Egress
		} else {
			all.Ingress = prior.Ingress
		}
		if i := slices.IndexFunc(prior.Deferred, of); i >= 0 {
			all.Deferred = append(all.Deferred, prior.Deferred[i])
		}
		if prior.Limit(d) == nil {
			continue
		}
		for i, note := range all.Notes {
			if why, ok := strings.CutPrefix(note, d.String()+" has no limit: "); ok {
				all.Notes[i] = d.String() + " keeps the limit from before: " + why
			}
		}
	}
	return all
}
