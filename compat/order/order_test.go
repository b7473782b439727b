// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package order_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/order"
	"github.com/podweir/podweir/compat/profiles"
)

var (
	cilFrom  = order.Program{ID: 10, LinkID: 3, Name: "cil_from_contai"}
	mine     = order.Program{ID: 20, LinkID: 4, Name: "pw_police", Ours: true}
	stranger = order.Program{ID: 30, Name: "tracer"}
	npa      = order.Program{ID: 40, Name: "handle_egress", Pref: 1, Handle: 1}
	u32      = order.Program{Name: "u32", Pref: 1, NotBPF: true}
)

func in(tcx, legacy []order.Program) *order.Hook {
	return &order.Hook{Direction: profiles.HookIn, Revision: 7, TCX: tcx, Legacy: legacy}
}

type list = []order.Program

func TestPlace(t *testing.T) {
	cilium, npaProfile, ptp := profiles.Find("cilium"), profiles.Find("aws-vpc-cni-npa"), profiles.Find("ptp")
	for name, tc := range map[string]struct {
		hook    *order.Hook
		profile *profiles.Profile
		mode    profiles.Mode
		want    order.Placement
		err     error
		names   string
	}{
		"empty list":                        {in(nil, nil), cilium, profiles.ModeTCXHostSide, order.Placement{Kind: profiles.HookTCX, Where: order.AtHead, Revision: 7}, nil, ""},
		"before Cilium":                     {in(list{cilFrom}, nil), cilium, profiles.ModeTCXHostSide, order.Placement{Kind: profiles.HookTCX, Where: order.BeforeProgram, Anchor: cilFrom, Revision: 7}, nil, ""},
		"first already":                     {in(list{mine, cilFrom}, nil), cilium, profiles.ModeTCXHostSide, order.Placement{Kind: profiles.HookTCX, Where: order.AtHead, Revision: 7, There: true}, nil, ""},
		"ours is behind":                    {in(list{cilFrom, mine}, nil), cilium, profiles.ModeTCXHostSide, order.Placement{Kind: profiles.HookTCX, Where: order.BeforeProgram, Anchor: cilFrom, Revision: 7}, nil, ""},
		"TCX beside the NPA":                {in(nil, list{npa}), npaProfile, profiles.ModeTCXHostSide, order.Placement{Kind: profiles.HookTCX, Where: order.AtHead, Revision: 7}, nil, ""},
		"clsact beside the NPA":             {in(nil, list{npa}), npaProfile, profiles.ModeClsactHostSide, order.Placement{}, order.ErrRefused, "aws-vpc-cni-npa"},
		"clsact, NPA to come":               {in(nil, nil), npaProfile, profiles.ModeClsactHostSide, order.Placement{}, order.ErrRefused, "TC_ACT_OK"},
		"clsact, foreign u32":               {in(nil, list{u32}), ptp, profiles.ModeClsactHostSide, order.Placement{}, order.ErrHeld, "u32 filter at preference 1"},
		"clsact on the pod's side, foreign": {in(nil, list{stranger}), ptp, profiles.ModeClsactPodSide, order.Placement{}, order.ErrHeld, "tracer"},
		"clsact, behind a TCX program":      {in(list{stranger}, nil), ptp, profiles.ModeClsactHostSide, order.Placement{}, order.ErrHeld, "tracer"},
		"clsact, nobody":                    {in(nil, nil), ptp, profiles.ModeClsactHostSide, order.Placement{Kind: profiles.HookClsact}, nil, ""},
		"clsact, ours":                      {in(nil, list{mine}), ptp, profiles.ModeClsactPodSide, order.Placement{Kind: profiles.HookClsact, There: true}, nil, ""},
		"unread":                            {&order.Hook{Unread: "EPERM"}, ptp, profiles.ModeTCXHostSide, order.Placement{}, order.ErrUnread, "EPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := order.Place(tc.hook, tc.profile, tc.mode, &tc.profile.Egress)
			if !errors.Is(err, tc.err) || err != nil && !strings.Contains(err.Error(), tc.names) {
				t.Errorf("Place() error %v, want %v naming %q", err, tc.err, tc.names)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Place() (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := order.Place(in(nil, nil), ptp, profiles.ModeQdisc, &ptp.Egress); err == nil || !strings.Contains(err.Error(), `"qdisc" is not accepted`) {
		t.Errorf("Place(qdisc) = %v, want an error", err)
	}
}

// TestPlaceByTheHookAlone: where the profile refuses nothing, what a CNI of the
// profile will hold is refused all the same.
func TestPlaceByTheHookAlone(t *testing.T) {
	p := profiles.Find("aws-vpc-cni-npa")
	if _, err := order.Place(in(nil, nil), p, profiles.ModeClsactHostSide, &profiles.Attach{}); !errors.Is(err, order.ErrHeld) {
		t.Errorf("Place() = %v, want ErrHeld", err)
	}
}

// TestClsactNeverBesideOthers tries every profile with every foreign filter.
func TestClsactNeverBesideOthers(t *testing.T) {
	for _, p := range profiles.All() {
		for _, a := range []*profiles.Attach{&p.Egress, &p.Ingress} {
			for _, mode := range []profiles.Mode{profiles.ModeClsactHostSide, profiles.ModeClsactPodSide} {
				for _, foreign := range (list{npa, u32, stranger}) {
					if got, err := order.Place(in(nil, list{mine, foreign}), p, mode, a); err == nil {
						t.Errorf("%s: Place(%s) beside %v = %+v, want an error", p.Name, mode, foreign, got)
					}
				}
			}
		}
	}
}

func TestJudge(t *testing.T) {
	cilium := profiles.Find("cilium")
	for name, tc := range map[string]struct {
		hook  *order.Hook
		kind  profiles.HookKind
		want  order.Standing
		says  string
		moved bool
	}{
		"first":                   {in(list{mine, cilFrom}, nil), profiles.HookTCX, order.First, "asked first", false},
		"starved by Cilium":       {in(list{cilFrom, mine}, nil), profiles.HookTCX, order.Starved, "cil_from_contai (program 10) ends the chain", true},
		"behind a stranger":       {in(list{stranger, mine, cilFrom}, nil), profiles.HookTCX, order.Behind, "tracer (program 30) ahead of podweir", true},
		"stranger, then Cilium":   {in(list{stranger, cilFrom, mine}, nil), profiles.HookTCX, order.Starved, "cil_from_contai", true},
		"missing":                 {in(list{cilFrom}, nil), profiles.HookTCX, order.Missing, "not on the hook", false},
		"same id, not ours":       {in(list{{ID: 20, Name: "x"}}, nil), profiles.HookTCX, order.Missing, "not on the hook", false},
		"legacy behind TCX":       {in(list{cilFrom}, list{mine}), profiles.HookClsact, order.Starved, "cil_from_contai", false},
		"legacy behind legacy":    {in(nil, list{stranger, mine}), profiles.HookClsact, order.Behind, "tracer", false},
		"legacy alone":            {in(nil, list{mine}), profiles.HookClsact, order.First, "first", false},
		"TCX ahead of all legacy": {in(list{mine}, list{cilFrom}), profiles.HookTCX, order.First, "first", false},
		"unread":                  {&order.Hook{Unread: "EPERM"}, profiles.HookTCX, order.NotKnown, "could not be read", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := order.Judge(tc.hook, cilium, tc.kind, mine.ID)
			if got.Standing != tc.want || !strings.Contains(got.String(), tc.says) || got.Moved != tc.moved {
				t.Errorf("Judge() = %+v (%v), want %s saying %q", got, got, tc.want, tc.says)
			}
		})
	}
	// The same program on a hook where Cilium has none is nobody's that is known.
	out := in(list{cilFrom, mine}, nil)
	out.Direction = profiles.HookOut
	if got := order.Judge(out, cilium, profiles.HookTCX, mine.ID); got.Standing != order.Behind {
		t.Errorf("Judge(other direction) = %v, want behind", got)
	}
}

func TestDrift(t *testing.T) {
	cilium := profiles.Find("cilium")
	good := in(list{mine, cilFrom}, nil)
	for name, tc := range map[string]struct {
		after *order.Hook
		want  string
	}{
		"nothing moved":           {in(list{mine, cilFrom}, nil), ""},
		"somebody behind us":      {in(list{mine, stranger, cilFrom}, nil), ""},
		"somebody ahead":          {in(list{stranger, mine, cilFrom}, nil), "tracer (program 30) ahead of podweir"},
		"the CNI ahead":           {in(list{cilFrom, mine}, nil), "cil_from_contai (program 10) ends the chain: podweir sees no packet"},
		"ours is gone":            {in(list{cilFrom}, nil), "podweir's program is not on the hook"},
		"it cannot be read later": {&order.Hook{Unread: "x"}, "the hook could not be read"},
	} {
		t.Run(name, func(t *testing.T) {
			got := order.Drift(good, tc.after, cilium, profiles.HookTCX, mine.ID)
			if (got == nil) != (tc.want == "") || got != nil && !strings.Contains(got.String(), tc.want) {
				t.Errorf("Drift() = %v, want %q", got, tc.want)
			}
		})
	}
}

func TestStrangers(t *testing.T) {
	got := order.Strangers(in(list{mine, stranger, cilFrom}, list{npa}), profiles.Find("cilium"))
	if diff := cmp.Diff(list{stranger, npa}, got); diff != "" {
		t.Errorf("Strangers() (-want +got):\n%s", diff)
	}
}
