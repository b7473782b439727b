// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package coexist_test proves that podweir and the software that shares a pod's device with it
// leave each other alone. It drives podweir's CNI plugin and its neighbours in network
// namespaces.
package coexist_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// neighbour has programs on the device of one pod, which drop what
// goes to the denied port in both directions.
type neighbour interface {
	// arrive attaches.
	arrive(t *testing.T)
	// programs are the places of its programs, with what holds them there, and
	// the ids of the programs in the same order.
	programs(t *testing.T) (places, ids []string)
	// owns says whether an error of podweir's names it.
	owns(text string) bool
}

// step is something that happens.
type step struct {
	label string
	do    func(t *testing.T)
	// replaces says that the neighbour has other programs afterwards, each in
	// the place of the one before.
	replaces bool
}

// kase is one pod with a neighbour and a mode.
type kase struct {
	pod  *pod
	mode *mode
	// profile is what podweir knows of the neighbour.
	profile *profiles.Profile
	traffic *traffic
	other   neighbour
	// later is what happens to the neighbour after both have come.
	later []step
	// ownGap says that the neighbour itself lets packets through meanwhile.
	ownGap bool
}

// run takes a case through its orders.
func (k *kase) run(t *testing.T, podweirFirst bool) {
	t.Helper()
	if k.cannot(t, podweirFirst) {
		return
	}
	if podweirFirst {
		k.pod.must(t, "ADD", k.mode)
		k.other.arrive(t)
		k.row(t, "podweir first")
		first := k.later[0]
		k.neighbours(t, &first)
		k.row(t, "podweir first, then "+first.label)
		if k.mayAdd(t, "podweir first, ADD repeated", k.refused()) {
			k.row(t, "podweir first, ADD repeated")
		}
		k.pod.remove(t, k.mode)
		return
	}
	const second = "podweir second"
	k.other.arrive(t)
	end := k.traffic.watch(t)
	refused := !k.mayAdd(t, second, k.refused())
	end()
	if refused {
		return
	}
	k.row(t, second)
	for _, s := range []step{
		{label: "podweir re-attached", do: func(t *testing.T) { t.Helper(); k.pod.remove(t, k.mode); k.pod.must(t, "ADD", k.mode) }},
		{label: "podweir upgraded", do: func(t *testing.T) { t.Helper(); k.pod.upgrade(t, k.mode) }},
	} {
		k.ours(t, &s)
		k.row(t, s.label)
	}
	for _, s := range k.later {
		end := func() {}
		if !k.ownGap {
			end = k.traffic.watch(t)
		}
		k.neighbours(t, &s)
		end()
		k.row(t, s.label)
	}
	k.pod.remove(t, k.mode)
}

// ours takes a step of podweir's: the neighbour keeps its programs in their
// places, and nothing that it denies passes meanwhile.
func (k *kase) ours(t *testing.T, s *step) {
	t.Helper()
	places, ids := k.other.programs(t)
	end := k.traffic.watch(t)
	s.do(t)
	end()
	placesAfter, idsAfter := k.other.programs(t)
	if !slices.Equal(places, placesAfter) || !slices.Equal(ids, idsAfter) {
		t.Errorf("%s: the neighbour has %v %v, want %v %v as before", s.label, placesAfter, idsAfter, places, ids)
	}
}

// neighbours takes a step of the neighbour's: podweir's programs stay what they
// are, and the neighbour's are in the same places.
func (k *kase) neighbours(t *testing.T, s *step) {
	t.Helper()
	mine := programs(t, k.pod.node())
	places, ids := k.other.programs(t)
	s.do(t)
	must.Match(t, s.label+": podweir's programs", mine, programs(t, k.pod.node()))
	placesAfter, idsAfter := k.other.programs(t)
	must.Match(t, s.label+": where the neighbour is", places, placesAfter)
	for i, id := range idsAfter {
		if s.replaces && slices.Contains(ids, id) {
			t.Errorf("%s: the neighbour still has program %s at %s, want another", s.label, id, placesAfter[i])
		}
	}
}

// noTCX is in the error for a mode that the kernel does not have.
const noTCX = "the kernel has no TCX"

// cannot says that the kernel lacks what the mode needs, and holds ADD to say so, whoever
// is there.
func (k *kase) cannot(t *testing.T, podweirFirst bool) bool {
	t.Helper()
	if !k.mode.tcx || testutil.HaveTCX() {
		return false
	}
	if !podweirFirst {
		k.other.arrive(t)
	}
	err := k.pod.call(t, "ADD", k.mode)
	if err == nil || !strings.Contains(describe(err), noTCX) {
		t.Fatalf("ADD = %v, want an error with %q", err, noTCX)
	}
	if podweirFirst {
		k.other.arrive(t)
	}
	k.probe(t, "refused")
	return true
}

// mayAdd runs ADD and says whether it shaped. It has to refuse the mode or not, and a
// refusal to name the neighbour.
func (k *kase) mayAdd(t *testing.T, order string, refused bool) bool {
	t.Helper()
	err := k.pod.call(t, "ADD", k.mode)
	if (err != nil) != refused {
		t.Fatalf("%s: ADD = %s, want it refused: %t", order, describe(err), refused)
	}
	if err == nil {
		return true
	}
	text := describe(err)
	t.Logf("%s: ADD: %s", order, text)
	if !k.other.owns(text) {
		t.Errorf("ADD = %s, which does not name the neighbour", text)
	}
	k.probe(t, order)
	return false
}

// probe holds the verdicts to be the neighbour's, always.
func (k *kase) probe(t *testing.T, order string) {
	t.Helper()
	const want = "allowed passes, denied drops"
	if out, in := k.traffic.egress.verdicts(t), k.traffic.ingress.verdicts(t); out != want || in != want {
		t.Errorf("%s: egress: %s; ingress: %s; want %s", order, out, in, want)
	}
}

// look says whether podweir holds each direction, and what CHECK answers: nothing, or who
// keeps podweir from it.
func (k *kase) look(t *testing.T, order string) (egress, ingress bool, check error) {
	t.Helper()
	k.probe(t, order)
	egress, ingress = k.holds(t, terms.Egress), k.holds(t, terms.Ingress)
	check = k.pod.call(t, "CHECK", k.mode)
	t.Logf("%s: egress shaped %t, ingress shaped %t, CHECK: %s", order, egress, ingress, describe(check))
	if text := describe(check); check != nil && !k.other.owns(text) {
		t.Errorf("%s: CHECK = %s, which does not name the neighbour", order, text)
	}
	if (!egress || !ingress) && check == nil {
		t.Errorf("%s: egress shaped %t, ingress shaped %t, and CHECK does not say so", order, egress, ingress)
	}
	return egress, ingress, check
}

// row looks at the pod as it is. A mode that the profile rules out is held to nothing but
// that CHECK says what does not hold.
func (k *kase) row(t *testing.T, order string) {
	t.Helper()
	egress, ingress, check := k.look(t, order)
	if !k.refused() && (check != nil || !egress || !ingress) {
		t.Errorf("%s: egress shaped %t, ingress shaped %t, CHECK = %s, want all well: the profile rules nothing out",
			order, egress, ingress, describe(check))
	}
}

// refused says that the neighbour's profile rules the mode out.
func (k *kase) refused() bool {
	return k.profile.Egress.Refused[terms.Name(k.mode.profile)] != "" || k.profile.Ingress.Refused[terms.Name(k.mode.profile)] != "" ||
		k.profile.Ingress.Place.Is == terms.PlaceIFB && k.mode.ingressHost
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// mode is a way to attach.
type mode struct {
	keys conf
	// egress and ingress are its names.
	egress, ingress string
	// profile is the mode's name in package profiles, where there is no auto.
	profile terms.Mode
	// tcx says that it needs a kernel with TCX.
	tcx bool
	// ingressHost says that ingress is held on the host side.
	ingressHost bool
}

// modes are all that there are, one for every place where podweir
// can stand in either direction.
func modes() []*mode {
	return []*mode{
		{keys: conf{}, egress: "auto", ingress: "auto", profile: terms.ModeQdisc, ingressHost: true},
		{keys: conf{"queue": "none"}, egress: "auto, policing", ingress: "auto, policing"},
		{keys: conf{"mode": "qdisc", "policy": "flat"}, egress: "qdisc, flat", ingress: "qdisc, flat", profile: terms.ModeQdisc, ingressHost: true},
		{keys: conf{"mode": "qdisc", "ingressPlace": "ifb"}, egress: "qdisc", ingress: "qdisc on an ifb", profile: terms.ModeQdisc},
		{keys: conf{"mode": "tcx-podside"}, egress: "tcx-podside", ingress: "tcx-podside, policing", profile: terms.ModeTCXPodSide, tcx: true},
		{
			keys: conf{"mode": "tcx-hostside"}, egress: "tcx-hostside, policing", ingress: "tcx-hostside",
			profile: terms.ModeTCXHostSide, ingressHost: true, tcx: true,
		},
		{keys: conf{"mode": "clsact-podside"}, egress: "clsact-podside", ingress: "clsact-podside, policing", profile: terms.ModeClsactPodSide},
		{
			// With hostHook tcx, as beside these neighbours, ADD refuses this mode.
			keys: conf{"mode": "clsact-hostside", "hostHook": "auto"}, egress: "clsact-hostside, policing", ingress: "clsact-hostside",
			profile: terms.ModeClsactHostSide, ingressHost: true,
		},
	}
}

// rare says that the mode differs by one setting from one that is tested more often.
func (m *mode) rare() bool {
	return m.egress == "clsact-podside" || m.egress == "tcx-podside" || m.egress == "qdisc, flat"
}

// likely says that podweir takes the mode by itself beside some profile.
func (m *mode) likely() bool {
	return (m.egress == "auto" || m.egress == "qdisc") && (m.ingress == "auto" || m.ingress == "qdisc on an ifb")
}

// name is the mode as the name of a subtest.
func (m *mode) name() string {
	return strings.ReplaceAll(m.egress+"+"+m.ingress, " ", "")
}

// programs are the ids of the programs that podweir pinned for the node.
func programs(t *testing.T, node string) map[string]ebpf.ProgramID {
	t.Helper()
	pins := must.Get(filepath.Glob(filepath.Join(node, "pw_*")))(t)
	all := make(map[string]ebpf.ProgramID)
	for _, pin := range pins {
		prog, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			continue // a map
		}
		info, err := prog.Info()
		_ = prog.Close()
		must.OK(t, err)
		all[pin], _ = info.ID()
	}
	return all
}
