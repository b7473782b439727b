// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

func checkOneAgent(f *Facts) Outcome {
	switch agents := f.Node.Agents(); len(agents) {
	case 0:
		return skip("no agent is seen")
	case 1:
		return holds(agents[0])
	default:
		return breaks(fmt.Sprintf("%d agents of podweir run on the node: %s", len(agents), strings.Join(agents, ", ")), "one",
			"helm uninstall, for one of the two releases", agents...)
	}
}

func checkNetwork(f *Facts) Outcome {
	dir := "/" + f.Node.ConfDir
	file := f.Node.Conf.Active()
	switch {
	case f.Node.Conf == nil:
		return breaks(dir+" cannot be read", "the directory of conflists", "podweir doctor --root, --cni-conf-dir: say where it is", problems(f)...)
	case file == nil:
		fix := "restart the primary CNI's DaemonSet"
		if f.Node.Config.Network != "" {
			fix += ", or correct cni_default_network in CRI-O's configuration"
		}
		return breaks(f.Node.Conf.None(), "a conflist of the primary CNI", fix)
	case hidden(file.Err):
		return unknown(file.Err.Error())
	case file.Err != nil:
		return breaks(file.Err.Error(), "a network that libcni can load", "restart the primary CNI's DaemonSet, or remove "+dir+"/"+file.Name, dir+"/"+file.Name).of(f.inForce())
	}
	var broken []string
	if f.Node.Runtime.ReadsDropIns() != profiles.No {
		for _, err := range f.Node.Conf.BrokenDropIns() {
			broken = append(broken, err.Error())
		}
	}
	if len(broken) > 0 {
		return breaks(strings.Join(broken, "; "), "drop-ins that libcni can load: for one that it cannot, it loads no network",
			"repair or remove it in "+dir+"/"+file.Network.Name, broken...).of(f.inForce())
	}
	for _, other := range f.Node.Conf.Files {
		if other.Err != nil && !hidden(other.Err) {
			broken = append(broken, other.Err.Error())
		}
	}
	if len(broken) > 0 {
		return warns("in force: "+file.Name+"; not in force and broken: "+strings.Join(broken, "; "), "no broken files",
			"remove them: CRI-O reads them all", broken...)
	}
	return holds(fmt.Sprintf("%s, network %s", file.Name, file.Network.Name), strings.Join(f.chain(), " → "))
}

// hidden says that this user may not read a file. Only root may read podweir's own files.
func hidden(err error) bool { return errors.Is(err, fs.ErrPermission) }

func problems(f *Facts) []string {
	out := make([]string, len(f.Node.Problems))
	for i, p := range f.Node.Problems {
		out[i] = p.Error()
	}
	return out
}

func checkChained(f *Facts) Outcome {
	chain := f.chain()
	seen := f.Node.Conf.Active().Name + ": " + strings.Join(chain, " → ")
	expected := conflist.Type + " once, behind the plugin that makes the interface"
	fix := f.afterOriginal("podweir install --delivery " + string(f.Choice.Delivery))
	at := slices.Index(chain, conflist.Type)
	for _, c := range f.Node.Conf.DropIns[f.Node.Conf.Active().Network.Name] {
		if at < 0 && hidden(c.Err) && f.Node.Runtime.ReadsDropIns() != profiles.No {
			return unknown(c.Err.Error())
		}
	}
	switch {
	case at < 0 && f.Choice.Delivery.ByAgent() && len(f.ownDropIns()) == 0 && len(f.Node.Conf.Own()) == 0:
		if f.Node.SeesNode() && len(f.Node.Agents()) == 0 {
			return breaks("the delivery is "+string(f.Choice.Delivery)+", because "+f.Choice.Why+"; no agent of podweir runs here to limit pods", "podweir's agent",
				"helm install, or podweir agent as a service of the node: docs/howto/install-with-helm.md")
		}
		return skip("the delivery is " + string(f.Choice.Delivery))
	case at < 0 && len(f.ownDropIns()) > 0:
		return breaks(seen+"; the drop-in is not read", expected, fix).of(f.inForce())
	case at <= 0:
		return breaks(seen, expected, fix).of(f.inForce())
	case slices.Contains(chain[at+1:], conflist.Type):
		return breaks(seen, expected, "keep one delivery and one entry: remove podweir's file or its drop-in, or take out all entries of "+f.Node.Conf.Active().Name+" but one")
	}
	var unread error
	for _, handler := range slices.Sorted(maps.Keys(f.Node.Config.Apart)) {
		dir := f.Node.Config.Apart[handler].Dir
		conf, err := conflist.ReadDir(f.Root, dir)
		if err != nil { // the agent may not see all of the node
			unread = err
			continue
		}
		if slices.Contains(conf.Effective(f.Node.Runtime.ReadsDropIns() != profiles.No), conflist.Type) {
			continue
		}
		fix := "podweir install --cni-conf-dir /" + dir + "; without it nobody limits these pods"
		if f.agentRuns() { // both would write the record of what was installed
			fix = "take cni_conf_dir out of the handler; the agent limits these pods only once they run"
		}
		return warns(seen+"; pods of the handler "+handler+" have their network from /"+dir+" (cni_conf_dir), where podweir is not", expected, fix, "/"+dir)
	}
	if unread != nil {
		return unknown(unread.Error())
	}
	return holds(seen)
}

func checkDrift(f *Facts) Outcome {
	own := f.Node.Conf.Own()
	if len(own) == 0 {
		return skip("podweir has no conflist here")
	}
	if f.called() != nil {
		return skip("its original is not the first file: PW208")
	}
	original := f.Node.Conf.Original()
	if original == nil || original.Network == nil {
		return skip("there is no original to compare with: PW204")
	}
	if at := slices.IndexFunc(own, byHand); at >= 0 {
		return handMade(&own[at], original, f.afterOriginal("podweir install: it writes its own file in the place of this one"))
	}
	for i := range own {
		action, why := conflist.Decide(conflist.Standing{Delivery: profiles.Chain, Original: original, Own: &own[i], Installed: f.installed})
		if action == conflist.Write {
			return breaks(own[i].Name+": "+why, "a file that was made from the original as it is now", f.afterOriginal("podweir install; a running agent does it itself: see its log"), own[i].Name).of([]string{original.Name})
		}
	}
	if len(own) > 1 {
		return breaks(fmt.Sprintf("%d files of podweir's", len(own)), "one", remove(f, own[1].Name))
	}
	return holds(own[0].Name + " matches " + original.Name)
}

// afterOriginal is a cure that installs podweir, after what the primary CNI's file needs first: podweir install refuses
// one whose chain makes no interface.
func (f *Facts) afterOriginal(install string) string {
	if o := f.Node.Conf.Network(); o.MakesNone() != nil {
		return "put the plugin that makes the interface first in /" + f.Node.ConfDir + "/" + o.File + ", or restart the DaemonSet that writes it; then " + install
	}
	return install
}

// byHand says that a person made a file of podweir's name, as the how-to shows.
func byHand(own conflist.File) bool { return own.Network != nil && own.Network.Mark == nil }

// handMade compares a file that no agent updates with its original: both have the same
// plugins with the same settings, except podweir in one and bandwidth in the other.
func handMade(own, original *conflist.File, fix string) Outcome {
	var differ []string
	for _, plugin := range append(original.Network.Without(own.Network), own.Network.Without(original.Network)...) {
		if plugin != conflist.Type && plugin != "bandwidth" && !slices.Contains(differ, plugin) {
			differ = append(differ, plugin)
		}
	}
	types := func(n *conflist.Network) (all []string) {
		for i := range n.Plugins {
			if t := n.Plugins[i].Type; t != conflist.Type && t != "bandwidth" {
				all = append(all, t)
			}
		}
		return all
	}
	if len(differ) == 0 && !slices.Equal(types(own.Network), types(original.Network)) {
		differ = []string{"the order of its plugins"}
	}
	seen := own.Name + " was made by hand and is not followed"
	if len(differ) > 0 {
		return warns(seen+", and "+original.Name+" has now otherwise: "+strings.Join(differ, ", "),
			"the plugins of "+original.Name+" with their settings, and podweir-cni", fix, own.Name).of([]string{original.Name})
	}
	return holds(seen+"; it has the plugins of "+original.Name+". To have it followed: "+fix, own.Name)
}

func (f *Facts) installed(plugin string) bool { return f.Node.Binary(f.Root, plugin) != "" }

func remove(f *Facts, name string) string { return "rm /" + f.Node.ConfDir + "/" + name }

func checkStale(f *Facts) Outcome {
	if f.Node.Conf == nil {
		return skip("needs PW201: the directory of conflists cannot be read")
	}
	own := f.Node.Conf.Own()
	switch {
	case len(own) == 0:
		return skip("podweir has no conflist here")
	case f.Node.Conf.Active() == nil || !f.Node.Conf.Active().Ours():
		return skip("podweir's file is not in front: PW208")
	}
	action, why := conflist.Decide(conflist.Standing{
		Delivery: profiles.Chain, Original: f.Node.Conf.Original(), Own: &own[0],
	})
	if action == conflist.Delete {
		return breaks(own[0].Name+" is in front, and "+why, "no file of podweir's in front", remove(f, own[0].Name), own[0].Name)
	}
	return holds("its original is there")
}

func checkBinary(f *Facts) Outcome {
	name := f.Node.Binary(f.Root, conflist.Type)
	const fix = "install -m 0755 podweir-cni "
	if name == "" {
		return breaks(conflist.Type+" is not in /"+strings.Join(f.Node.BinDirs, ", /"), "the plugin's binary", fix+"/"+f.Node.BinDirs[0])
	}
	info, err := fs.Stat(f.Root, name)
	switch dir := path.Dir(name); {
	case err != nil:
		return breaks("/"+name+": "+err.Error(), "a file that can be read", fix+"/"+name)
	case info.Mode().Perm()&0o111 == 0:
		return breaks("/"+name+" is not executable", "mode 0755", "chmod 0755 /"+name)
	case len(mountedWith(f.Root, "noexec", dir)) > 0:
		return breaks("/"+dir+" is on a file system that is mounted noexec", "a mount from which plugins can be run",
			"mount -o remount,exec for the file system of /"+dir+", or use another bin_dir")
	}
	return holds("/" + name)
}

func checkBandwidth(f *Facts) Outcome {
	chain, active := f.chain(), f.Node.Conf.Active()
	seen := active.Name + ": " + strings.Join(chain, " → ")
	both := slices.Contains(chain, "bandwidth") && slices.Contains(chain, conflist.Type)
	dropIns := f.Node.Conf.DropIns[active.Network.Name]
	at := slices.IndexFunc(dropIns, func(c conflist.DropInConf) bool { return c.Type == "bandwidth" })
	switch {
	case slices.Contains(chain, "bandwidth") && at >= 0:
		return breaks(seen, "podweir-cni in the place of bandwidth", remove(f, active.Network.Name+"/"+dropIns[at].Name)+": it is a drop-in, which no delivery replaces").of(f.inForce())
	case both:
		return breaks(seen, "podweir-cni without bandwidth", "take bandwidth out of "+active.Name+"'s source, or use the delivery chain").of(f.inForce())
	case slices.Contains(chain, "bandwidth"):
		return warns(seen, "podweir-cni in the place of bandwidth", f.afterOriginal("podweir install --delivery chain: podweir takes its place")).of(f.inForce())
	}
	return holds("bandwidth is not in the chain")
}

func checkEntry(f *Facts) Outcome {
	raw, file := f.ownEntry()
	switch {
	case f.Entry == nil:
		return skip("the plugin's parser is not there in this mode")
	case file == "":
		return unknown("podweir's entry cannot be read")
	}
	if err := f.Entry(raw); err != nil {
		return breaks(strings.ReplaceAll(err.Error(), "\n", "; "), "values that podweir-cni accepts", "correct "+file, file)
	}
	if low, pods := f.lowMaximum(); low != "" {
		return warns(low, "a maximum that most pods ask for less than", "raise it where it comes from, if it is not meant so: podweir install --default, the chart's defaults, or the Namespace", file).of(pods)
	}
	return holds("podweir-cni accepts all of it", file)
}

// lowMaximum names the setting that gives most limits of the node less than what their pods
// ask for, and those pods; "" if there is none.
func (f *Facts) lowMaximum() (low string, pods []string) {
	asking := 0
	type decider struct {
		by   string
		rate uint64
	}
	lowered := map[decider][]string{}
	for i := range f.Attached {
		a := &f.Attached[i]
		if a.DecidedBy != "" && a.Asked == 0 {
			continue
		}
		asking++
		if a.Asked > a.Rate {
			d := decider{a.DecidedBy, uint64(a.Rate)}
			lowered[d] = append(lowered[d], a.Pod)
		}
	}
	for d, of := range lowered {
		if 2*len(of) > asking {
			return fmt.Sprintf("%s (%d bit/s) is below what %d of %d limits of this node's pods ask for", d.by, d.rate, len(of), asking), of
		}
	}
	return "", nil
}

func checkCapabilities(f *Facts) Outcome {
	raw, file := f.ownEntry()
	if file == "" {
		return unknown("podweir's drop-in cannot be read")
	}
	var conf struct {
		Capabilities map[string]bool `json:"capabilities"`
	}
	if err := json.Unmarshal(raw, &conf); err != nil {
		return breaks("capabilities: "+err.Error(), "an object of booleans", "podweir install")
	}
	var miss, misspelt []string
	want := []string{"bandwidth", "io.kubernetes.cri.pod-annotations"}
	for _, c := range want {
		if !conf.Capabilities[c] {
			miss = append(miss, c)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(conf.Capabilities)) {
		if !slices.Contains(want, c) && terms.Nearest(c, miss) != "" {
			misspelt = append(misspelt, strconv.Quote(c)+terms.DidYouMean(c, miss))
		}
	}
	switch {
	case len(misspelt) > 0:
		return breaks("misspelt: "+strings.Join(misspelt, " "), `"capabilities": {"bandwidth": true, "io.kubernetes.cri.pod-annotations": true}`,
			"correct it in the entry in "+file+", or podweir install; then recreate the pods, or let an agent limit those that run").of(f.unheardPods())
	case len(miss) > 0:
		return breaks("the entry lacks the capability "+strings.Join(miss, " and "), `"capabilities": {"bandwidth": true, "io.kubernetes.cri.pod-annotations": true}`,
			"add it to the entry in "+file).of(f.unheardPods())
	}
	return holds("bandwidth and annotations are passed")
}

// besideFirst is a delivery that works whatever sorts first.
func (f *Facts) besideFirst() string {
	if d := f.Choice.Delivery; d != profiles.Chain {
		return string(d)
	}
	return string(profiles.DropIn)
}

func checkFirst(f *Facts) Outcome {
	if len(f.Node.Conf.Own()) == 0 {
		return skip("podweir has no conflist here")
	}
	if first := f.Node.Conf.Active(); first == nil {
		return skip("no network is in force")
	} else if own := f.called(); own != nil {
		return warns(first.Name+" calls "+own.Name+": what changes in the primary CNI's file does not reach it", "the primary CNI's own file behind "+first.Name,
			"have it call the file that "+own.Name+" was made from (Multus: multusMasterCNI or --multus-master-cni-file-name)", first.Name).of(f.inForce())
	} else if !first.Ours() {
		return breaks(first.Name+" sorts before "+f.Node.Conf.Own()[0].Name, "podweir's file first", "remove it if it is left over; else rename it at its source, or use the delivery "+f.besideFirst(), first.Name).of(f.inForce())
	}
	return holds(f.Node.Conf.Active().Name + " is first")
}
