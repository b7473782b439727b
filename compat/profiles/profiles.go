// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package profiles is what podweir knows of each primary CNI, as data: how it
// is recognised, which hooks and queues of a pod's interface it owns, and where
// podweir may attach beside it.
//
// The data is in profiles.yaml, with the sources. What no source says is unknown there, and
// listed in [Profile.Unknowns]; code that reads a profile treats unknown as the case that
// can do harm.
package profiles

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// Answer is yes, no, or not known.
type Answer uint8

// The zero value is the honest one.
const (
	Unknown Answer = iota
	Yes
	No
)

func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	default:
		return "unknown"
	}
}

// MarshalText writes an answer as text.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads yes, no or unknown.
func (a *Answer) UnmarshalText(text []byte) error {
	for *a = range No + 1 {
		if a.String() == string(text) {
			return nil
		}
	}
	return fmt.Errorf("%q is not known", text)
}

// Is turns a known truth into an answer.
func Is(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

// AtLeast says whether a version such as v1.18.4, or a release of Linux such as 6.1.0-13, is
// this release or a later one.
func AtLeast(version string, major, minor int) Answer {
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	hasMajor, errMajor := strconv.Atoi(first)
	hasMinor, errMinor := strconv.Atoi(second)
	if errMajor != nil || errMinor != nil || hasMajor < 0 {
		return Unknown
	}
	return Is(hasMajor > major || hasMajor == major && hasMinor >= minor)
}

// HookUse is a hook of the host-side device that the CNI holds.
type HookUse struct {
	Kind      terms.Named[terms.HookKind]
	Direction terms.Named[terms.Hook] `yaml:"hook"`
	// Programs are the names of its programs, as the kernel reports them: 15
	// characters at most. A * at the end matches any rest. A filter that is no BPF
	// program has its kind here: "u32 filter".
	Programs []string
	// EndsChain says whether the programs behind it on this hook never run.
	EndsChain Answer `yaml:"endsChain"`
	// Note says when and how.
	Note string
}

// QdiscUse is a root qdisc that the CNI puts on a device.
type QdiscUse struct {
	// Device says which, in words.
	Device string
	Kind   string
	// When says under which configuration.
	When string
}

// Attach is where podweir attaches for one direction of the pod: on a queue of its own, if
// the operator does not say otherwise.
type Attach struct {
	// Place is for ingress.
	Place terms.Named[terms.Place]
	// Refused are the modes that must not be used beside this CNI, each with
	// its reason.
	Refused map[terms.Named[terms.Mode]]string
	// Why says why here, for ingress.
	Why string
}

// Rules are what it rules out, for the judge.
func (a *Attach) Rules() judge.Rules {
	refused := map[terms.Mode]string{}
	for mode, why := range a.Refused {
		refused[mode.Is] = why
	}
	return judge.Rules{Refused: refused}
}

// NoHostFilter says that another program wants the clsact qdisc of the host side for
// itself, or removes filters there.
func (p *Profile) NoHostFilter() bool {
	egress, ingress := p.Egress.Rules(), p.Ingress.Rules()
	return !egress.Filters(terms.SideHost) || !ingress.Filters(terms.SideHost)
}

// Delivery is a way for podweir into the set-up of pods.
type Delivery string

// The deliveries.
const (
	Chain  Delivery = "chain"
	DropIn Delivery = "drop-in"
	Handed Delivery = "handed"
	NRI    Delivery = "nri"
	Watch  Delivery = "watch"
)

// ByAgent says that nothing of podweir is on the node and the agent alone attaches:
// when the runtime calls it (NRI), or when it sees the pod (Watch).
func (d Delivery) ByAgent() bool { return d == NRI || d == Watch }

// ConflistPolicy is how the CNI treats the directory of conflists.
type ConflistPolicy struct {
	// File is the name it writes, without the directory.
	File string
	// MayBeExclusive says that it can be configured to rename all other files.
	MayBeExclusive bool `yaml:"mayBeExclusive"`
	// BinDirs are directories in use instead of /opt/cni/bin.
	BinDirs []string `yaml:"binDirs"`
	// HandedDo are the commands by which the CNI takes our chain into its own
	// file; empty if it cannot.
	HandedDo []string `yaml:"handedDo"`
	// HandedAgainDo are those that change podweir's entry in a chain that has it.
	HandedAgainDo []string `yaml:"handedAgainDo"`
	// ShareDo are the commands that end its exclusive mode.
	ShareDo []string `yaml:"shareDo"`
}

// Conflict is a known way for the two to harm each other.
type Conflict struct {
	With   string
	Effect string
	// Do is what to do about it.
	Do string
}

// SignalKind is where a sign of a CNI is looked for.
type SignalKind string

// The kinds of sign.
const (
	SignalSocket  SignalKind = "socket"
	SignalProcess SignalKind = "process"
	SignalDevice  SignalKind = "device"
	SignalProgram SignalKind = "program"
)

// Signal is one sign that a CNI runs on a node.
type Signal struct {
	Kind SignalKind
	// Value is the path of a socket that is listened on, the name of a process (15
	// characters at most), or the beginning of a device's or program's name.
	Value string
}

// The facts of a node that conditions use. detect fills them.
const (
	// FactCiliumDatapath is veth, netkit or netkit-l2.
	FactCiliumDatapath = "cilium datapath mode"
	// FactCiliumRouting is BPF or Legacy: how packets reach a pod.
	FactCiliumRouting = "cilium host routing"
	// FactCiliumAttach is tcx or tc.
	FactCiliumAttach = "cilium attach mode"
	// FactCiliumEndpointRoutes is yes or no.
	FactCiliumEndpointRoutes = "cilium endpoint routes"
	// FactCiliumChaining is the chaining mode of cilium-cni, empty if it is the
	// main plugin.
	FactCiliumChaining = "cilium chaining mode"
	// FactNPA is yes or no: whether the AWS Network Policy Agent enforces.
	FactNPA = "aws network policy agent enforces"
	// FactFelixQueues is yes or no: whether a Felix runs that enforces bandwidth
	// annotations, and so owns the root qdisc of the host side.
	FactFelixQueues = "felix owns root qdiscs"
	// FactCalicoDataplane is bpf or tables.
	FactCalicoDataplane = "calico dataplane"
	// FactFlannelDelegate is the type that the flannel plugin calls.
	FactFlannelDelegate = "flannel delegate"
	// FactDistribution is k3s, rke2 or gke, empty for any other.
	FactDistribution = "distribution"
	// FactBridge is the bridge that the first plugin names.
	FactBridge = "bridge"
	// FactNetwork is the name of the network in force.
	FactNetwork = "network name"
)

// Condition demands a fact of the node.
type Condition struct{ Fact, Value string }

// Profile is what podweir knows of one primary CNI in one configuration.
type Profile struct {
	// Name is stable and shown by status and doctor.
	Name  string
	Title string
	// Family groups the configurations of one CNI.
	Family string
	// Plugins are the types that make the interface; the first entry of the
	// chain has one of them.
	Plugins []string
	// Chained are types that must be further down the chain.
	Chained []string
	// When are facts that must hold too. Of several profiles that fit, the one
	// with most of them is taken.
	When []Condition
	// Fallback marks the member of a family that is assumed while the facts
	// that tell its members apart are not known: the one that does no harm.
	Fallback bool
	Signals  []Signal

	Device     terms.DeviceKind
	Hooks      []HookUse
	RootQdiscs []QdiscUse `yaml:"rootQdiscs"`
	// Bypass says whether packets to the pod skip the egress side of the host
	// device, queue included.
	Bypass    Answer
	BypassWhy string `yaml:"bypassWhy"`
	// SharesAnnotations says whether it enforces kubernetes.io/*-bandwidth
	// itself.
	SharesAnnotations Answer `yaml:"sharesAnnotations"`
	// Shaper is set if it enforces them by itself and not by a chained plugin, which
	// podweir would take the place of.
	Shaper terms.Named[terms.Shaper]

	Egress, Ingress Attach
	Conflist        ConflistPolicy
	Conflicts       []Conflict
	// Tried are the rows of the CNI matrix that ran with it and passed.
	Tried []string
	// PlacesRead says that one of the sources says where podweir attaches. Otherwise, and
	// if it was not tried, that is guessed: it follows from how such software usually works.
	PlacesRead bool `yaml:"placesRead"`
	// Unknowns lists what no source said.
	Unknowns []string
}

// Find returns the profile with this name, nil if there is none.
func Find(name string) *Profile {
	for _, p := range All() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Careful returns the member of the profile's family that is assumed while the facts are
// not known: what suits it does no harm beside any of them.
func (p *Profile) Careful() *Profile {
	for _, other := range All() {
		if other.Family == p.Family && other.Fallback {
			return other
		}
	}
	return p
}

// Owns says whether a program on a hook of the host side is the CNI's, as far as names
// tell. A filter that is no BPF program has no name: it goes by its kind, on the hook
// where the CNI has it.
func (p *Profile) Owns(hook terms.Hook, other *judge.Program) bool {
	return slices.ContainsFunc(p.Hooks, func(h HookUse) bool {
		if other.Name == "" {
			return h.Direction.Is == hook && h.Names(other.FilterKind+" filter")
		}
		return h.Names(other.Name)
	})
}

// EndsChain says whether a program with this name is known to end the chain on a hook
// of the host side.
func (p *Profile) EndsChain(hook terms.Hook, name string) bool {
	return slices.ContainsFunc(p.Hooks, func(h HookUse) bool {
		return h.Direction.Is == hook && h.EndsChain == Yes && h.Names(name)
	})
}

// Names says whether a program with this name is one of those on the hook.
func (h HookUse) Names(name string) bool {
	return slices.ContainsFunc(h.Programs, func(pattern string) bool {
		begin, open := strings.CutSuffix(pattern, "*")
		return pattern == name || open && strings.HasPrefix(name, begin)
	})
}

//go:embed profiles.yaml
var file []byte

// read returns the profiles of profiles.yaml; the last one is [Other]. A test reads them
// all, so what does not fit there is a fault of the build.
var read = sync.OnceValue(func() (all []Profile) {
	d := yaml.NewDecoder(bytes.NewReader(file))
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil {
		panic(fmt.Sprintf("profiles.yaml: %v", err))
	}
	return all
})

// All returns every profile, the more specific ones of a family first. The
// caller may keep and change the profiles, not what they point to.
func All() []*Profile {
	all := read()
	out := make([]*Profile, len(all)-1)
	for i := range out {
		p := all[i]
		out[i] = &p
	}
	return out
}

// Other is the profile of a CNI that is not known: podweir attaches where it does
// no harm whatever the CNI does. It is not in [All].
func Other() *Profile {
	all := read()
	p := all[len(all)-1]
	return &p
}
