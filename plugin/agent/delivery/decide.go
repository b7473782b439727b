// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

// choice picks the delivery. Without a readable network there is nothing to
// decide by, and the last choice holds: a CNI may be writing its file just now. An
// agent that has just started takes the last choice from what is on the node.
func (m *Manager) choice(v *view) (conflist.Choice, error) {
	if v.conf.Network() != nil {
		// A disk with errors is mounted read-only: what is in force then stays so.
		if f := m.found(v); (m.config.Delivery == Auto || m.config.Delivery == f.delivery) && v.situation.Writable == profiles.No && f.delivery != "" && v.inForce() {
			return conflist.Choice{
				Delivery: f.delivery, Why: "as it was", Warning: v.situation.Obstacle + ": podweir cannot change its files",
			}, nil
		}
		return choose(m.config.Delivery, v.situation)
	}
	if m.chosen.Delivery != "" {
		return m.chosen, nil
	}
	if f := m.found(v); f.delivery != "" && m.config.Delivery == Auto {
		return conflist.Choice{Delivery: f.delivery, Why: "as it was: without a network there is nothing to decide by"}, nil
	}
	return choose(m.config.Delivery, v.situation)
}

// found is what podweir's own files on the node tell of the last decision.
type found struct {
	// delivery is "" if there are none.
	delivery profiles.Delivery
	network  string
	entry    []byte
}

func (m *Manager) found(v *view) found {
	for _, f := range v.conf.Own() {
		if !machineMade(&f) {
			continue
		}
		if at := f.Network.Index(conflist.Type); at >= 0 {
			return found{profiles.Chain, f.Network.Name, f.Network.Plugins[at].Raw}
		}
	}
	for _, network := range m.dropIns(v) {
		raw, err := os.ReadFile(filepath.Join(m.real(v.confDir), network, conflist.DropInFile))
		if err == nil {
			return found{profiles.DropIn, network, bytes.TrimSpace(raw)}
		}
	}
	return found{}
}

// choose picks the delivery. What the operator asks for wins where it can work;
// the error says why it cannot.
func choose(asked profiles.Delivery, s conflist.Situation) (conflist.Choice, error) {
	best := conflist.Choose(s)
	if asked == Auto || asked == best.Delivery {
		if asked != Auto {
			best.Why = "requested; " + best.Why
		}
		return best, handable(asked, best, s)
	}
	c := conflist.Choice{Delivery: asked, Why: "requested; podweir would choose " + string(best.Delivery) + ": " + best.Why}
	if s.Writable == profiles.No && !asked.ByAgent() {
		return conflist.Choice{}, refused(asked, s.Obstacle, best)
	}
	why, certain := conflist.Objection(asked, s)
	if certain {
		if asked == profiles.Chain && s.Exclusive == profiles.Yes {
			why += "; to end that: " + strings.Join(s.Profile.Conflist.ShareDo, "; ")
		}
		return conflist.Choice{}, refused(asked, why, best)
	}
	c.Warning = why
	switch asked {
	case profiles.Chain:
		c.Instead = best.Instead
	case profiles.Watch:
		c.Warning = conflist.WatchIsLate
	case profiles.Handed:
		c.Do = s.Profile.Conflist.HandedDo
	default:
	}
	return c, handable(asked, c, s)
}

func refused(asked profiles.Delivery, why string, best conflist.Choice) error {
	return settingError("delivery", string(asked), "auto or "+string(best.Delivery)+" on this node", why)
}

// handable returns an error if the delivery is handed and the CNI cannot take a
// chain from others.
func handable(asked profiles.Delivery, c conflist.Choice, s conflist.Situation) error {
	if c.Delivery != profiles.Handed || len(c.Do) > 0 || s.Original != nil && s.Original.Index(conflist.Type) >= 0 {
		return nil
	}
	return settingError("delivery", string(asked), strings.Join(names(Deliveries, profiles.Handed), ", "), s.Profile.Title+" does not take a chain from others")
}

// compareHanded warns if the primary CNI's own chain has podweir with other settings than
// the node's. A pod starts with those, and what the agent does afterwards may be too late,
// as for onError.
func (p *pass) compareHanded() {
	n := p.view.conf.Network()
	differ := n.Otherwise(p.view.handed)
	if len(differ) == 0 {
		return
	}
	p.choice.Warning = join(p.choice.Warning, n.File+" has podweir with other settings than this node: "+strings.Join(differ, ", "))
	if again := p.view.situation.Profile.Conflist.HandedAgainDo; len(again) > 0 {
		p.choice.Do = again
	}
}

// warnRepeated warns if a chain that another party wrote has podweir more than once.
func (p *pass) warnRepeated() {
	chain := p.view.conf.Effective(p.view.readsDropIns())
	if at := slices.Index(chain, conflist.Type); at >= 0 && slices.Contains(chain[at+1:], conflist.Type) {
		p.choice.Warning = join(p.choice.Warning, fmt.Sprintf("%s calls %s more than once for each pod (%s): take out all entries but one, which has both capabilities",
			p.view.conf.Active().Name, conflist.Type, strings.Join(chain, ", ")))
	}
}

// names are the deliveries without one of them.
func names(all []profiles.Delivery, without profiles.Delivery) []string {
	var out []string
	for _, d := range all {
		if d != without {
			out = append(out, string(d))
		}
	}
	return out
}

// checkConfig checks what can be checked without the node.
func checkConfig(c *Config) error {
	if !slices.Contains(Deliveries, c.Delivery) {
		return settingError("delivery", string(c.Delivery), "one of "+strings.Join(names(Deliveries, ""), ", "), "")
	}
	if c.Runtime != "" {
		if _, err := conflist.ParseRuntime(c.Runtime); err != nil {
			return settingError("runtime", c.Runtime, "NAME://VERSION, as containerd://2.1.3", "")
		}
	}
	_, _, err := new(beside).entry(merge(nil, c.Defaults))
	return err
}
