// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

func checkFought(f *Facts) Outcome {
	if f.Fight == nil {
		return holds("none is noted")
	}
	return breaks(f.Fight.File+": another program "+f.Fight.Change+"; podweir stopped at "+f.Fight.Since.UTC().Format(time.RFC3339), "a file that stays as podweir wrote it",
		"find who writes there: inotifywait -m "+path.Dir(f.Fight.File)+", and the logs of other installers; or another delivery for podweir", f.Fight.File).
		of(append([]string{path.Base(f.Fight.File)}, f.inForce()...))
}

// waysOut are the delivery that suits the node, where podweir carries it out alone, and
// the ways that the choice names: each is a list of commands, one after the other.
func (f *Facts) waysOut() string {
	var ways []string
	if f.Choice.Delivery == profiles.DropIn {
		ways = append(ways, "podweir install, which takes the delivery drop-in; a running agent does it by itself")
	}
	for _, commands := range [][]string{f.Choice.Do, f.Choice.Instead} {
		if len(commands) > 0 {
			ways = append(ways, strings.Join(commands, " && "))
		}
	}
	for _, hint := range f.withoutDefaults() {
		ways[0] += " (" + hint + ")"
	}
	return strings.Join(ways, "; or: ")
}

// withoutDefaults says that podweir's entry in the commands of the choice is the plain
// one. It is empty if it is not, or if no command has an entry.
func (f *Facts) withoutDefaults() []string {
	if len(f.Choice.Do) == 0 || f.handed != "" {
		return nil
	}
	return []string{"add the chart's defaults to podweir's entry: they are not known here"}
}

// changeHanded is how podweir's entry in the primary CNI's own chain is changed.
func (f *Facts) changeHanded() string {
	if do := f.Profile.Conflist.HandedAgainDo; len(do) > 0 {
		return strings.Join(do, " && ")
	}
	return "change it where " + f.Node.Conf.Network().File + " comes from"
}

func checkDelivery(f *Facts) Outcome {
	c := f.Choice
	inPlace, where := f.inPlace()
	why, certain := conflist.Objection(inPlace, f.Situation)
	differ := f.Node.Conf.Network().Otherwise(f.handed)
	switch own := f.called(); {
	case own != nil:
		return holds("delivery " + string(c.Delivery) + "; " + f.Node.Conf.Active().Name + " calls " + own.Name)
	case len(differ) > 0:
		return warns(where+" with other settings than this node: "+strings.Join(differ, ", "), "the entry "+f.handed, f.changeHanded()).of(f.inForce())
	case why == "" && inPlace == c.Delivery:
		return holds("delivery "+string(c.Delivery)+": "+c.Why, slices.Concat(c.Do, f.withoutDefaults(), c.Instead)...)
	case why == "" && c.Delivery == profiles.Handed:
		return warns(where+" until "+f.Profile.Title+" writes podweir into its own chain", "delivery handed: "+c.Why, f.waysOut())
	case why == "":
		return holds("delivery " + string(inPlace) + ", which works here; podweir would choose " + string(c.Delivery) + ": " + c.Why)
	case certain:
		return breaks(where+", and "+why, "delivery "+string(c.Delivery)+": "+c.Why, f.waysOut(), f.Node.ExclusiveWhy).of(f.inForce())
	case f.Situation.Runtime.ReadsDropIns() == profiles.Unknown && inPlace == profiles.DropIn:
		return warns(why, "a runtime that is known to read drop-ins", "podweir doctor --runtime NAME://VERSION; or: "+f.waysOut())
	case inPlace == profiles.DropIn:
		return warns(why, "podweir-cni without bandwidth", "take bandwidth out of the primary CNI's configuration", c.Why).of(f.inForce())
	}
	return warns(where+", and "+why, "delivery "+string(c.Delivery), f.waysOut(), f.Node.ExclusiveWhy)
}

// inPlace is the delivery that the node's files show, else the one that is
// chosen, and how to say so.
func (f *Facts) inPlace() (d profiles.Delivery, where string) {
	own, original := f.Node.Conf.Own(), f.Node.Conf.Network()
	switch {
	case original != nil && original.Index(conflist.Type) >= 0:
		return profiles.Handed, "podweir is in " + original.File
	case len(own) > 0:
		return profiles.Chain, own[0].Name + " is beside the primary CNI's file"
	case len(f.ownDropIns()) > 0:
		return profiles.DropIn, "podweir is a drop-in"
	}
	return f.Choice.Delivery, "the delivery is " + string(f.Choice.Delivery)
}

func checkDropInRead(f *Facts) Outcome {
	networks := f.ownDropIns()
	if len(networks) == 0 {
		return skip("podweir has no drop-in")
	}
	r := f.Node.Runtime
	if n := f.Node.Conf.Network(); n != nil && n.OnlyInlined {
		return breaks(n.File+" says loadOnlyInlinedPlugins", "a network that reads its drop-ins", "use another delivery: PW210").of(f.inForce())
	}
	switch r.ReadsDropIns() {
	case profiles.Yes:
		if file := f.Node.Conf.Active(); file != nil && file.Network != nil {
			left := slices.DeleteFunc(slices.Clone(networks), func(name string) bool { return name == file.Network.Name })
			if 0 < len(left) && len(left) < len(networks) {
				return warns("left over for networks that are not in force: "+strings.Join(left, ", "), "one drop-in of podweir's",
					"rm /"+path.Join(f.Node.ConfDir, left[0], conflist.DropInFile))
			}
		}
		return holds(r.String())
	case profiles.No:
		return breaks(r.String()+" ignores drop-in directories", "containerd 2.1, CRI-O 1.33 or newer", "upgrade the runtime, or use another delivery: PW210").of(f.inForce())
	case profiles.Unknown:
	}
	return unknown("whether " + r.String() + " reads drop-in directories")
}

func checkRenamed(f *Facts) Outcome {
	if f.Node.Conf == nil {
		return skip("needs PW201: the directory of conflists cannot be read")
	}
	renamed := f.Node.Conf.Renamed()
	inForce, again := slices.Contains(f.chain(), conflist.Type), len(f.Node.Conf.Own()) > 0 && f.Node.Exclusive != profiles.No
	switch {
	case len(renamed) == 0:
		return holds("none is renamed")
	case inForce && !again:
		return holds(strings.Join(renamed, ", ")+" is left over and has no effect: podweir is in the chain in force", renamed...)
	case !inForce && f.Node.Exclusive == profiles.No:
		return holds(strings.Join(renamed, ", ")+" is left over, and no program renames now: "+f.Node.ExclusiveWhy, renamed...)
	}
	about := []string{strings.TrimSuffix(renamed[0], conflist.BackupSuffix)}
	if !inForce {
		about = append(about, f.inForce()...)
	}
	return breaks(strings.Join(renamed, ", "), "no file of podweir's renamed", f.waysOut(), renamed...).of(about)
}
