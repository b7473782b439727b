// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

// Runtimes are the sandboxed runtimes of a node, whose pods take packets from the pod's
// device in another way than processes do.
type Runtimes struct {
	// Redirects says that one of them adds an ingress qdisc to the pod's device and
	// redirects from there, as Kata does; GVisor that there is a handler of gVisor.
	Redirects, GVisor bool
	// TCX says whether the kernel has it.
	TCX Answer
}

// Fill adds to a plugin's configuration where podweir attaches on a node: the keys that the
// profile of its CNI and its runtimes demand and the operator left open. p is nil where no
// CNI is in force. The notes say what of the operator's wishes the profile advises against.
func Fill(p *Profile, r Runtimes, keys map[string]any) (notes []string) {
	r.besideRedirects(keys)
	if p == nil {
		return nil
	}
	out := r.outOfPod(p, keys)
	if p.NoHostFilter() && keys["hostHook"] == nil {
		keys["hostHook"] = hookTCX
	}
	if p.Ingress.Place.Is == terms.PlaceIFB {
		notes = p.besidePast(keys)
	}
	if out {
		delete(keys, "ingressPlace")
		keys["ingressMode"], keys["ingressQueue"] = terms.ModeTCXHostSide.String(), terms.QueueNone.String()
		notes = append(notes, "ingress is policed at the host side: pods of gVisor read what comes ahead of a limit in the pod, and "+p.Ingress.Why)
	}
	return notes
}

// besideRedirects keeps podweir's clsact off the pod's device, where a runtime adds an
// ingress qdisc. Before TCX that would leave too much out: the doctor names it there.
func (r Runtimes) besideRedirects(keys map[string]any) {
	clsact := terms.ModeClsactPodSide.String()
	byName := Chosen(keys, "egressMode", "mode") == clsact || Chosen(keys, "ingressMode", "mode") == clsact
	if r.Redirects && r.TCX == Yes && Chosen(keys, podHook) == "" && !byName {
		keys[podHook] = hookTCX
	}
}

// outOfPod says that ingress is to be policed at the host side: gVisor reads what comes
// ahead of a limit in the pod, the CNI owns the root qdisc of the host side, and nothing
// goes past that side. Where the CNI leaves the root qdisc alone the queue is there anyway.
func (r Runtimes) outOfPod(p *Profile, keys map[string]any) bool {
	if !r.GVisor || p.Bypass != No || p.Ingress.Place.Is != terms.PlaceIFB || r.TCX != Yes {
		return false
	}
	return !slices.ContainsFunc([]string{"ingressMode", "mode", "ingressQueue", "queue", "ingressPlace"}, func(key string) bool {
		return Chosen(keys, key) != ""
	})
}

// InPod says that podweir limits ingress within the pod by these keys beside this CNI, which
// may be nil.
func InPod(p *Profile, keys map[string]any) bool {
	mode, place := Chosen(keys, "ingressMode", "mode"), Chosen(keys, "ingressPlace")
	switch named, _ := terms.ParseMode(mode); {
	case named == terms.ModeTCXPodSide, named == terms.ModeClsactPodSide:
		return true
	case named.HostSide():
		return false
	}
	if named, err := terms.ParsePlace(place); err == nil && named != terms.PlaceAuto {
		return named.IFB()
	}
	// Policing by auto is at the pod's own hook.
	return Chosen(keys, "ingressQueue", "queue") == terms.QueueNone.String() || p != nil && p.Device == terms.DeviceNetkit
}

// hookTCX keeps podweir's clsact filters off a side, podHook is the key for the pod side.
const (
	hookTCX = "tcx"
	podHook = "podHook"
)

// besidePast puts the ingress queue where no packets go past it, unless the
// operator wants ingress elsewhere by name. Where the kernel has no ifb the plugin
// polices instead, unless the operator requested the ifb by name.
func (p *Profile) besidePast(keys map[string]any) (notes []string) {
	mode, place := Chosen(keys, "ingressMode", "mode"), Chosen(keys, "ingressPlace")
	named := terms.ModeAuto
	if mode != "" {
		var err error
		if named, err = terms.ParseMode(mode); err != nil {
			notes = append(notes, "ingressMode, mode: "+err.Error())
		}
	}
	switch {
	case named == terms.ModeTCXPodSide, named == terms.ModeClsactPodSide:
		return nil // that hook sees everything
	case named.HostSide():
		place = terms.PlaceHost.String()
	}
	if place == terms.PlaceHost.String() {
		return append(notes, "ingress is where the operator wants it; beside "+p.Title+" packets may go past it: "+p.BypassWhy)
	}
	if place == "" {
		keys["ingressPlace"] = terms.PlacePreferIFB.String()
	}
	return notes
}

// Chosen is the first of the keys that the operator gave, "" where it leaves the
// choice to podweir.
func Chosen(keys map[string]any, names ...string) string {
	for _, name := range names {
		if value, ok := keys[name].(string); ok {
			if value == "auto" {
				return ""
			}
			return value
		}
	}
	return ""
}

// OneShaperBeside says how a pod gets one shaper beside another component that enforces
// the standard annotations.
func OneShaperBeside(s terms.Shaper) string {
	if s == terms.ShaperCalico {
		return OneShaperBesideFelix
	}
	return ownKeys + "; to leave the limits to " + s.Title() + " give the default shaper=" + s.String()
}

// ownKeys are the annotations that only podweir reads.
const ownKeys = "give such pods podweir.io/ingress-rate and podweir.io/egress-rate, which only podweir reads, in place of kubernetes.io/*-bandwidth"

// OneShaperBesideFelix says how a pod gets one shaper beside Calico's agent.
const OneShaperBesideFelix = "to take Felix's own limit away annotate the pod with qos.projectcalico.org/ingressBandwidth: \"1P\" and " +
	"qos.projectcalico.org/egressBandwidth: \"1P\", or give it podweir.io/ingress-rate and podweir.io/egress-rate in place of kubernetes.io/*-bandwidth; " +
	"to leave the limits to Calico give the default shaper=calico"

// LiftFelixLimit is the command that takes Felix's limit from a pod, and the way to do so
// for all. A pod is namespace/name.
func LiftFelixLimit(pod string) string {
	namespace, name, _ := strings.Cut(pod, "/")
	return "kubectl -n " + namespace + " annotate pod " + name + " qos.projectcalico.org/ingressBandwidth=1P qos.projectcalico.org/egressBandwidth=1P; " +
		"for all pods, and other ways to one shaper: docs/howto/calico.md"
}

// BesideFelix returns the profile for a node where Calico's agent may enforce policy beside
// the CNI, and owns root qdiscs of the host side.
func (p *Profile) BesideFelix() *Profile {
	felix := Find("calico")
	if p.Family == felix.Family || slices.Contains(p.RootQdiscs, felix.RootQdiscs[0]) {
		return p
	}
	out := *p
	if out.Ingress.Place.Is != terms.PlaceIFB {
		out.Ingress.Place, out.Ingress.Why = felix.Ingress.Place, felix.Ingress.Why
	}
	for attach, more := range map[*Attach]map[terms.Named[terms.Mode]]string{&out.Egress: felix.Egress.Refused, &out.Ingress: felix.Ingress.Refused} {
		all := maps.Clone(more)
		maps.Copy(all, attach.Refused)
		attach.Refused = all
	}
	out.Hooks = slices.Concat(p.Hooks, felix.Hooks)
	out.RootQdiscs = slices.Concat(p.RootQdiscs, felix.RootQdiscs)
	return &out
}

// handedEntry is podweir's entry in the commands of profiles.yaml. It has no settings of
// the operator's; see [Profile.WithEntry].
const handedEntry = `{"type":"podweir-cni","capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true},"hostHook":"tcx","ingressPlace":"prefer-ifb"}`

// ciliumUpgrade changes one setting of the release that runs: without its version
// Helm would take the newest.
const ciliumUpgrade = "helm upgrade cilium cilium/cilium --version " + AnyRelease + " --namespace kube-system --reuse-values --set "

// CiliumWithoutManager is the command that turns Cilium's bandwidth manager off;
// see [Command].
const CiliumWithoutManager = ciliumUpgrade + "bandwidthManager.enabled=false"

// AnyRelease is the placeholder in commands for the version of the CNI that runs;
// [Command] replaces it.
const AnyRelease = "VERSION"

// askRelease queries Helm for the version of the chart that is installed.
const askRelease = `"$(helm list --namespace kube-system --filter '^cilium$' --output json | jq -r '.[0].chart | ltrimstr("cilium-")')"`

// release is a version that may be written into a command as it is.
var release = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`)

// Command returns a command for the release that runs. Where that is not known
// the command asks Helm for it.
func Command(command, version string) string {
	if !release.MatchString(version) {
		version = askRelease
	}
	return strings.ReplaceAll(command, "--version "+AnyRelease, "--version "+version)
}

// ForRelease returns the profile with its commands for the release that runs.
func (p *Profile) ForRelease(version string) *Profile {
	out := *p
	out.Conflist.HandedDo = commands(p.Conflist.HandedDo, version)
	out.Conflist.ShareDo = commands(p.Conflist.ShareDo, version)
	return &out
}

// WithEntry returns the profile with its commands for an entry of podweir's that has the
// settings of the node.
func (p *Profile) WithEntry(entry string) *Profile {
	out := *p
	out.Conflist.HandedDo = withEntry(p.Conflist.HandedDo, entry)
	out.Conflist.HandedAgainDo = withEntry(p.Conflist.HandedAgainDo, entry)
	return &out
}

// withEntry puts an entry in the place of the plain one, which is between single quotes
// of the shell. JSON is a literal of jq's, too.
func withEntry(list []string, entry string) []string {
	quoted := strings.ReplaceAll(entry, "'", `'\''`)
	var out []string
	for _, c := range list {
		out = append(out, strings.ReplaceAll(c, handedEntry, quoted))
	}
	return out
}

func commands(list []string, version string) []string {
	var out []string
	for _, c := range list {
		out = append(out, Command(c, version))
	}
	return out
}
