// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/e2e/coexist"
	"github.com/podweir/podweir/plugin/attach"
)

// neighbour is somebody with programs on the device of one pod, who drops what
// goes to the denied port in both directions.
type neighbour interface {
	// arrive attaches.
	arrive(t *testing.T)
	// programs are its programs in their places, with their ids.
	programs(t *testing.T) string
	// owns says whether an error of podweir's names it.
	owns(text string) bool
}

// step is something that happens.
type step struct {
	label string
	do    func(t *testing.T)
}

// kase is one pod with a neighbour and a mode.
type kase struct {
	title, device string
	pod           *pod
	mode          *mode
	// profile is what podweir knows of the neighbour.
	profile *profiles.Profile
	traffic *traffic
	other   neighbour
	// later is what happens to the neighbour after both have come.
	later []step
	// ownGap says that the neighbour itself lets packets through meanwhile.
	ownGap bool
	rows   []coexist.Row
}

// run takes a case through its orders.
func (k *kase) run(t *testing.T, podweirFirst bool) {
	t.Helper()
	add := step{"podweir second", func(t *testing.T) { t.Helper(); k.pod.must(t, "ADD", k.mode) }}
	if podweirFirst {
		k.pod.must(t, "ADD", k.mode)
		k.other.arrive(t)
		k.row(t, "podweir first")
		first := k.later[0]
		first.do(t)
		k.row(t, "podweir first, then "+first.label)
		if k.mayAdd(t, "podweir first, ADD repeated") {
			k.row(t, "podweir first, ADD repeated")
		}
		k.pod.remove(t, k.mode)
		return
	}
	k.other.arrive(t)
	end := k.traffic.watch(t)
	refused := !k.mayAdd(t, add.label)
	end()
	if refused {
		return
	}
	k.row(t, add.label)
	ours := []step{
		{"podweir re-attached", func(t *testing.T) { t.Helper(); k.pod.remove(t, k.mode); k.pod.must(t, "ADD", k.mode) }},
		{"podweir upgraded", func(t *testing.T) { t.Helper(); k.pod.upgrade(t, k.mode) }},
	}
	for i, s := range slices.Concat(ours, k.later) {
		end := func() {}
		if i < len(ours) || !k.ownGap {
			end = k.traffic.watch(t)
		}
		before := k.other.programs(t)
		s.do(t)
		end()
		if after := k.other.programs(t); i < len(ours) && after != before {
			t.Errorf("%s: the neighbour has %s, want %s as before", s.label, after, before)
		}
		k.row(t, s.label)
	}
	k.pod.remove(t, k.mode)
}

// mayAdd runs ADD and says whether it shaped; a refusal has to name the
// neighbour, and is a row.
func (k *kase) mayAdd(t *testing.T, order string) bool {
	t.Helper()
	err := k.pod.call(t, "ADD", k.mode)
	if err == nil {
		return true
	}
	text := describe(err)
	t.Logf("ADD: %s", text)
	if !k.other.owns(text) {
		t.Errorf("ADD = %s, which does not name the neighbour", text)
	}
	r := k.blank(order)
	k.probe(t, &r)
	r.EgressShaped, r.IngressShaped, r.Check = "no", "no", "-"
	r.Result = "refused: " + refusal(text)
	k.rows = append(k.rows, r)
	return false
}

// hostDevice is a name that differs from run to run.
var hostDevice = regexp.MustCompile(`\b(veth|lxc|eni)[0-9a-f]+`)

// refusal is the reason in an error, without what differs from run to run.
func refusal(text string) string {
	if _, after, ok := strings.Cut(text, attach.ErrHookTaken.Error()+": "); ok {
		text = after
	}
	return hostDevice.ReplaceAllString(text, "$1…")
}

func (k *kase) blank(order string) coexist.Row {
	return coexist.Row{
		Neighbour: k.title, Device: k.device, Egress: k.mode.egress, Ingress: k.mode.ingress, Order: order,
	}
}

// probe fills in the verdicts; they have to be the neighbour's, always.
func (k *kase) probe(t *testing.T, r *coexist.Row) {
	t.Helper()
	const want = "allowed passes, denied drops"
	r.EgressVerdicts, r.IngressVerdicts = k.traffic.egress.verdicts(t), k.traffic.ingress.verdicts(t)
	if r.EgressVerdicts != want || r.IngressVerdicts != want {
		t.Errorf("%s: egress: %s; ingress: %s; want %s", r.Order, r.EgressVerdicts, r.IngressVerdicts, want)
	}
}

// look fills in a row with what is seen, but for the conclusion.
func (k *kase) look(t *testing.T, order string) (coexist.Row, error) {
	t.Helper()
	r := k.blank(order)
	k.probe(t, &r)
	r.EgressShaped, r.IngressShaped = yesNo(k.traffic.egress.shaped(t)), yesNo(k.traffic.ingress.shaped(t))
	err := k.pod.call(t, "CHECK", k.mode)
	r.Check = k.check(t, err)
	return r, err
}

// row looks at the pod as it is.
func (k *kase) row(t *testing.T, order string) {
	t.Helper()
	r, err := k.look(t, order)
	shaped := r.EgressShaped == "yes" && r.IngressShaped == "yes"
	r.Result = "ok"
	if why := k.ruledOut(); why != "" {
		r.Result = why
	} else if err != nil || !shaped {
		t.Errorf("%s: egress shaped %s, ingress shaped %s, CHECK = %s, want all well: the profile rules nothing out",
			order, r.EgressShaped, r.IngressShaped, describe(err))
	}
	if r.EgressShaped == "no" && err == nil {
		t.Errorf("%s: egress is not shaped, and CHECK does not say so", order)
	}
	k.rows = append(k.rows, r)
}

// ruledOut is what the neighbour's profile has against the mode, "" if nothing.
func (k *kase) ruledOut() string {
	refused := func(a *profiles.Attach) bool { return a.Refused[k.mode.profile] != "" }
	switch {
	case refused(&k.profile.Egress):
		return "ruled out by the profile"
	case k.profile.Ingress.Place == profiles.PlaceIFB && k.mode.ingressHost:
		return "ruled out by the profile: its place for ingress is an ifb"
	case refused(&k.profile.Ingress):
		return "ruled out by the profile"
	}
	return ""
}

// check is what CHECK says in the words of the page.
func (k *kase) check(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return "ok"
	}
	text := describe(err)
	t.Logf("CHECK: %s", text)
	switch {
	case k.other.owns(text):
		return "names the neighbour"
	case strings.Contains(text, "is not on the"):
		return "program is missing"
	default:
		t.Errorf("CHECK = %s, which says neither who nor what", text)
		return "fails"
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
