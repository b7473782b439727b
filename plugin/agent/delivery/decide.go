// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

// choose picks the delivery. What the operator asks for wins where it can work;
// a [*SettingError] says why it cannot.
func choose(asked profiles.Delivery, s conflist.Situation) (conflist.Choice, error) {
	best := conflist.Choose(s)
	if asked == Auto || asked == best.Delivery {
		if asked != Auto {
			best.Why = "asked for; " + best.Why
		}
		return best, handable(asked, best, s)
	}
	c := conflist.Choice{Delivery: asked, Why: "asked for; podweir would choose " + string(best.Delivery) + ": " + best.Why}
	if asked == profiles.NRI {
		if s.Runtime.HasNRI() == profiles.No {
			return conflist.Choice{}, refused(asked, s.Runtime.String()+" has no NRI, containerd has it from 1.7", best)
		}
		return c, nil
	}
	if s.Writable == profiles.No {
		return conflist.Choice{}, refused(asked, s.Obstacle, best)
	}
	switch asked {
	case profiles.Chain:
		return chained(c, best, s)
	case profiles.DropIn:
		return droppedIn(c, best, s)
	default:
		c.Do = s.Profile.Conflist.HandedDo
		return c, handable(asked, c, s)
	}
}

func refused(asked profiles.Delivery, why string, best conflist.Choice) error {
	return &SettingError{
		Setting: "delivery", Value: string(asked),
		Accepted: "auto or " + string(best.Delivery) + " on this node", Why: why,
	}
}

func chained(c, best conflist.Choice, s conflist.Situation) (conflist.Choice, error) {
	c.Instead = best.Instead
	switch {
	case !s.Profile.Conflist.MayBeExclusive:
	case s.Exclusive == profiles.Yes:
		return conflist.Choice{}, refused(c.Delivery, s.Profile.Title+" renames the conflists of others (cni.exclusive=true); "+
			"to end that: "+strings.Join(s.Profile.Conflist.ShareDo, "; "), best)
	case s.Exclusive == profiles.Unknown:
		c.Warning = "if " + s.Profile.Title + " runs with cni.exclusive=true it renames podweir's file, and pods start unshaped"
	}
	return c, nil
}

func droppedIn(c, best conflist.Choice, s conflist.Situation) (conflist.Choice, error) {
	switch {
	case s.Runtime.ReadsDropIns() == profiles.No:
		return conflist.Choice{}, refused(c.Delivery, s.Runtime.String()+" ignores drop-in directories; containerd reads them from 2.1, CRI-O from 1.34", best)
	case s.Original != nil && s.Original.OnlyInlined:
		return conflist.Choice{}, refused(c.Delivery, s.Original.File+" says loadOnlyInlinedPlugins", best)
	case s.Runtime.ReadsDropIns() == profiles.Unknown:
		c.Warning = "whether " + s.Runtime.String() + " reads drop-in directories is not known; if it does not, pods start unshaped"
	case s.Original != nil && s.Original.Index("bandwidth") >= 0:
		c.Warning = "the chain has the bandwidth plugin, which a drop-in cannot replace: two shapers on one annotation"
	}
	return c, nil
}

// handable returns an error if the delivery is handed and the CNI cannot take a
// chain from others.
func handable(asked profiles.Delivery, c conflist.Choice, s conflist.Situation) error {
	if c.Delivery != profiles.Handed || len(c.Do) > 0 || s.Original != nil && s.Original.Index(conflist.Type) >= 0 {
		return nil
	}
	return &SettingError{
		Setting: "delivery", Value: string(asked), Accepted: strings.Join(names(Deliveries, profiles.Handed), ", "),
		Why: s.Profile.Title + " does not take a chain from others",
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
		return &SettingError{Setting: "delivery", Value: string(c.Delivery), Accepted: "one of " + strings.Join(names(Deliveries, ""), ", ")}
	}
	if c.Runtime != "" {
		if _, err := conflist.ParseRuntime(c.Runtime); err != nil {
			return &SettingError{Setting: "runtime", Value: c.Runtime, Accepted: "NAME://VERSION, as containerd://2.1.3"}
		}
	}
	_, _, err := new(beside).entry(c.Defaults)
	return err
}
