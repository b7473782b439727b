// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package terms is the vocabulary: each word of the design that both podweir's own
// code and what it knows of others use is one type here, with its name for people.
// Records on the node hold the numbers, so a value never changes its number.
package terms

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/podweir/podweir/plugin/units"
)

// CNIVersions are the versions of the CNI specification that podweir-cni speaks, oldest
// first. A configuration that names none is of the oldest.
var CNIVersions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Direction is a direction of traffic, always from the pod's point of view.
type Direction uint8

// The two directions.
const (
	Egress Direction = iota + 1
	Ingress
)

// Directions lists both directions in the order they are set up.
var Directions = [...]Direction{Egress, Ingress}

func (d Direction) String() string { return name(directionNames, d) }

// Policy says how light and heavy flows share the cap.
type Policy uint8

// The policies of docs/explanation/glossary.md.
const (
	// PolicyStrict sends light flows first but charges them: the total is the cap.
	PolicyStrict Policy = iota + 1
	// PolicyElephants caps heavy flows only.
	PolicyElephants
	// PolicyFlat does not classify.
	PolicyFlat
)

func (p Policy) String() string { return name(policyNames, p) }

// Enforce is what is done about what exceeds a limit.
type Enforce uint8

// What may be done.
const (
	EnforceLimit Enforce = iota + 1
	// EnforceObserve measures and counts it, and holds nothing.
	EnforceObserve
)

func (e Enforce) String() string { return name(enforceNames, e) }

// Queue is where heavy packets wait.
type Queue uint8

// The kinds of queue.
const (
	QueueAuto Queue = iota + 1
	QueueTBF
	// QueueNone is policing.
	QueueNone Queue = 5
)

func (q Queue) String() string { return name(queueNames, q) }

// Mode is where podweir attaches.
type Mode uint8

// The attach modes of docs/reference/configuration.md.
const (
	ModeAuto Mode = iota + 1
	ModeQdisc
	ModeTCXPodSide
	ModeTCXHostSide
	ModeClsactPodSide
	ModeClsactHostSide
)

func (m Mode) String() string { return name(modeNames, m) }

// HostSide says whether the mode is of a shared hook of the host side.
func (m Mode) HostSide() bool { return m == ModeTCXHostSide || m == ModeClsactHostSide }

// Place is the device that holds the ingress queue.
type Place uint8

// The places of docs/reference/configuration.md.
const (
	PlaceAuto Place = iota + 1
	// PlaceHost is the root qdisc of the host-side device.
	PlaceHost
	// PlaceIFB is the root qdisc of an ifb in the pod's namespace.
	PlaceIFB
	// PlacePreferIFB is an ifb where the kernel has one that packets come
	// through. On other kernels the direction is policed. Profiles ask for this;
	// PlaceIFB is the operator's word and fails where it is not available.
	PlacePreferIFB
)

func (p Place) String() string { return name(placeNames, p) }

// IFB says whether the place is on an ifb, at least where the kernel has one.
func (p Place) IFB() bool { return p == PlaceIFB || p == PlacePreferIFB }

// Shaper is who enforces the limit that a pod's annotations ask for.
type Shaper uint8

// The shapers.
const (
	ShaperPodweir Shaper = iota + 1
	// ShaperCilium is Cilium's bandwidth manager, which reads the same
	// annotations.
	ShaperCilium
	// ShaperCalico is Calico's agent, which does so from v3.30.
	ShaperCalico
	// ShaperOVN is OVN-Kubernetes, which does so when a pod starts.
	ShaperOVN
)

// Title names the shaper in a sentence.
func (s Shaper) Title() string {
	switch s {
	case ShaperCilium:
		return "Cilium's bandwidth manager"
	case ShaperCalico:
		return "Calico"
	case ShaperOVN:
		return "OVN-Kubernetes"
	default:
		return s.String()
	}
}

func (s Shaper) String() string { return name(shaperNames, s) }

// Side is the device, of those that belong to a pod interface, that an object
// is on.
type Side uint8

// The devices of a pod interface.
const (
	SidePod Side = iota + 1
	SideHost
	// SideIFB is the ifb in the pod's namespace, behind a redirect.
	SideIFB
)

func (s Side) String() string { return name(sideNames, s) }

// Hook is where a program is attached on a device.
type Hook uint8

// The hooks.
const (
	HookNone Hook = iota + 1
	// HookOwnQdisc is the cls_bpf filter on a qdisc of podweir's.
	HookOwnQdisc
	// HookEgress and HookIngress are the shared hooks, named from the device's
	// point of view, not from the pod's: what the pod sends enters the host side.
	HookEgress
	HookIngress
)

func (h Hook) String() string { return name(hookNames, h) }

// HookKind is the kernel mechanism of a shared hook.
type HookKind uint8

// The kinds of shared hooks.
const (
	// HookKindAuto leaves it to what is found on the device.
	HookKindAuto HookKind = iota + 1
	HookKindClsact
	HookKindTCX
	// HookKindIngressQdisc and those after it are other parties' alone.
	HookKindIngressQdisc
	HookKindNetkit
	HookKindNetfilter
	HookKindOVS
)

func (k HookKind) String() string { return name(hookKindNames, k) }

// DeviceKind is the kernel's name of a kind of device, such as macvlan; empty for
// physical devices. Records on the node hold it as it is.
type DeviceKind string

// The kinds that podweir knows.
const (
	DeviceVeth   DeviceKind = "veth"
	DeviceNetkit DeviceKind = "netkit"
	DeviceIFB    DeviceKind = "ifb"
	// DeviceUnknown is what a CNI's profile says where the kind is not known.
	DeviceUnknown DeviceKind = "unknown"
)

// IsPair says that devices of the kind come as the two ends of a pair.
func (k DeviceKind) IsPair() bool { return k == DeviceVeth || k == DeviceNetkit }

// DirectionAt is the direction whose packets pass a hook of a pod's device.
func DirectionAt(s Side, h Hook) Direction {
	if (s == SidePod) == (h == HookEgress) {
		return Egress
	}
	return Ingress
}

var (
	directionNames = map[Direction]string{Egress: "egress", Ingress: "ingress"}
	policyNames    = map[Policy]string{
		PolicyStrict: "strict", PolicyElephants: "elephants", PolicyFlat: "flat",
	}
	enforceNames = map[Enforce]string{EnforceLimit: "limit", EnforceObserve: "observe"}
	queueNames   = map[Queue]string{
		QueueAuto: "auto", QueueTBF: "tbf", QueueNone: "none",
	}
	modeNames = map[Mode]string{
		ModeAuto: "auto", ModeQdisc: "qdisc",
		ModeTCXPodSide: "tcx-podside", ModeTCXHostSide: "tcx-hostside",
		ModeClsactPodSide: "clsact-podside", ModeClsactHostSide: "clsact-hostside",
	}
	sideNames = map[Side]string{SidePod: "pod", SideHost: "host", SideIFB: "ifb"}
	hookNames = map[Hook]string{
		HookNone: "none", HookOwnQdisc: "own-qdisc", HookEgress: "egress", HookIngress: "ingress",
	}
	hookKindNames = map[HookKind]string{
		HookKindAuto: "auto", HookKindClsact: "clsact", HookKindTCX: "tcx",
		HookKindIngressQdisc: "ingress qdisc", HookKindNetkit: "netkit", HookKindNetfilter: "netfilter ingress", HookKindOVS: "openvswitch port",
	}
	placeNames  = map[Place]string{PlaceAuto: "auto", PlaceHost: "host", PlaceIFB: "ifb", PlacePreferIFB: "prefer-ifb"}
	shaperNames = map[Shaper]string{
		ShaperPodweir: "podweir", ShaperCilium: "cilium", ShaperCalico: "calico", ShaperOVN: "ovn",
	}
)

func name[T ~uint8](names map[T]string, v T) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("invalid(%d)", v)
}

// ParsePolicy reads the name of a policy. Accepted are strict, elephants and
// flat; returns a [*units.ValueError] for anything else.
func ParsePolicy(s string) (Policy, error) { return parse(policyNames, s) }

// ParseEnforce reads what is to be done about what exceeds a limit. Accepted are limit and
// observe.
func ParseEnforce(s string) (Enforce, error) { return parse(enforceNames, s) }

// ParseQueue reads the name of a queue kind. Accepted are auto, tbf and none.
func ParseQueue(s string) (Queue, error) { return parse(queueNames, s) }

// ParseMode reads the name of an attach mode.
func ParseMode(s string) (Mode, error) { return parse(modeNames, s) }

// ParsePlace reads the name of an ingress place. Accepted are auto, host, ifb
// and prefer-ifb.
func ParsePlace(s string) (Place, error) { return parse(placeNames, s) }

// ParseShaper reads the name of a shaper. Accepted are podweir, cilium, calico and ovn.
func ParseShaper(s string) (Shaper, error) { return parse(shaperNames, s) }

func parse[T ~uint8](names map[T]string, s string) (T, error) {
	for v, n := range names {
		if n == s {
			return v, nil
		}
	}
	return 0, &units.ValueError{Value: s, Accepted: "one of " + accepted(names)}
}

// accepted lists the names in the order of their values.
func accepted[T ~uint8](names map[T]string) string {
	var out []string
	for v := T(1); len(out) < len(names); v++ {
		if n, ok := names[v]; ok {
			out = append(out, n)
		}
	}
	return strings.Join(out, ", ")
}

// Word is a type of the vocabulary.
type Word interface {
	~uint8
	fmt.Stringer
}

// Named is a word that JSON has by its name, for what commands and the agent tell. Records
// on the node have the number.
type Named[T Word] struct{ Is T }

// Name returns a word to be told by its name.
func Name[T Word](word T) Named[T] { return Named[T]{word} }

// String returns the name, "" if there is no word.
func (n Named[T]) String() string {
	if n.Is == 0 {
		return ""
	}
	return n.Is.String()
}

// MarshalText returns the name.
func (n Named[T]) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads a name; returns a [*units.ValueError] for what is none.
func (n *Named[T]) UnmarshalText(b []byte) error {
	const words = 32 // no type has as many
	for v := range T(words) {
		if named := Name(v); named.String() == string(b) {
			*n = named
			return nil
		}
	}
	return &units.ValueError{Value: string(b), Accepted: fmt.Sprintf("a name of %T", n.Is)}
}

// Nearest is the word that a user may have meant, "" if none is near: at most a quarter
// of the letters, and at most three, are missing, superfluous, others, or swapped with the
// next. Case makes no difference.
func Nearest(word string, of []string) string {
	const longest, part, most = 64, 4, 3
	best, least := "", most+1
	for _, w := range of {
		if len(word) > longest || len(w) > longest || max(len(word)-len(w), len(w)-len(word)) > most {
			continue
		}
		d := distance(strings.ToLower(word), strings.ToLower(w))
		if d < least && d <= max(len(w)/part, 1) {
			best, least = w, d
		}
	}
	return best
}

// distance is how many changes of one letter, or swaps of two neighbours, make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			other := 1
			if a[i-1] == b[j-1] {
				other = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+other)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// DidYouMean is `, did you mean "X"?` for a word that is near to another one, else "".
func DidYouMean(word string, of []string) string {
	if near := Nearest(word, of); near != "" {
		return ", did you mean " + strconv.Quote(near) + "?"
	}
	return ""
}

// Commands are those of podweir's program that texts tell a reader to run.
var Commands = []string{"attach", "detach", "doctor", "explain", "gc", "install", "repair", "set", "status", "top", "uninstall"}

// programRun is compiled at its first use: podweir-cni does not need it, and starts anew for each pod.
var programRun = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("((?:^|[^a-z-])(?:kubectl |-- )?)podweir ((?:" + strings.Join(Commands, "|") + ")\\b)")
})

// OnPath runs the program where it is on the PATH: on a node that it was installed on by
// hand.
const OnPath = "podweir"

// ByKubectl runs the program in the agent's pod on a node, from anywhere.
const ByKubectl = "kubectl podweir exec NODE -- podweir"

// Runnable returns a text for people with podweir's commands as they are run where it is
// read: run takes the place of the program's name. What says already how stays.
func Runnable(text, run string) string {
	if run == "" || run == OnPath {
		return text
	}
	return programRun().ReplaceAllStringFunc(text, func(found string) string {
		parts := programRun().FindStringSubmatch(found)
		if strings.HasSuffix(parts[1], "kubectl ") || strings.HasSuffix(parts[1], "-- ") {
			return found // it says already how
		}
		return parts[1] + run + " " + parts[2]
	})
}
