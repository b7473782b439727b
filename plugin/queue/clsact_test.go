// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func (d *device) attach(tb testing.TB, at queue.Place, p testutil.Program) bool {
	tb.Helper()
	return must.Get(queue.AttachClsact(d.Handle, d.index, at, queue.Classifier{ProgramFD: p.FD, Name: "pw_test"}))(tb)
}

// What is asked of one device is what the list of all says.
func TestPrivilegedObserveBare(t *testing.T) {
	testutil.RequireQdisc(t, "clsact", "bpf")
	d := newDevice(t)
	check := func(what string) {
		t.Helper()
		got, err := queue.ObserveBare(d.Handle, d.index)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		must.Match(t, what+": ObserveBare beside Observe", d.observe(t), got, cmp.AllowUnexported(queue.Qdisc{}))
	}
	check("nothing")
	d.Run(t, "tc", "qdisc", "add", "dev", "eth0", "ingress")
	check("an ingress qdisc")
	d.Run(t, "tc", "qdisc", "del", "dev", "eth0", "ingress")
	check("nothing any more")
	d.attach(t, queue.Place{Hook: terms.HookEgress, Pref: 9, Handle: 4}, testutil.VerdictProgram(t, "pw_test", -1))
	check("clsact with a filter")
	must.Is(t, "ObserveBare of no device", hostif.ErrNoDevice, must.Err(queue.ObserveBare(d.Handle, 4711)))
}

func TestPrivilegedAddToClsact(t *testing.T) {
	testutil.RequireQdisc(t, "clsact", "bpf")
	d := newDevice(t)
	p := testutil.VerdictProgram(t, "pw_test", -1)
	program := queue.Classifier{ProgramFD: p.FD, Name: "pw_test"}
	in, out := queue.Place{Hook: terms.HookIngress, Pref: 7, Handle: 3}, queue.Place{Hook: terms.HookEgress, Pref: 9, Handle: 4}
	must.Fail(t, "AddToClsact without a clsact qdisc", queue.AddToClsact(d.Handle, d.index, out, program))
	d.attach(t, in, p)
	must.OK(t, queue.AddToClsact(d.Handle, d.index, out, program))
	must.Is(t, "AddToClsact where a filter is", queue.ErrFilterExists, queue.AddToClsact(d.Handle, d.index, out, program))
	if err := queue.AddToClsact(d.Handle, d.index, out, queue.Classifier{ProgramFD: p.FD, Name: "other"}); err == nil || errors.Is(err, queue.ErrFilterExists) {
		t.Errorf("AddToClsact of a program without our prefix = %v, want an error that says so", err)
	}
	if got := d.observe(t).HookFilters; len(got) != 2 || got[1].Hook != terms.HookEgress || got[1].Pref != 9 {
		t.Errorf("Observe = %+v, want a filter on each hook", got)
	}
}

func TestPrivilegedClsactAttachDetach(t *testing.T) {
	testutil.RequireQdisc(t, "clsact", "bpf")
	d := newDevice(t)
	before := d.Run(t, "tc", "qdisc", "show", "dev", "eth0")
	next := testutil.VerdictProgram(t, "pw_test", -1)
	in := queue.Place{Hook: terms.HookIngress, Pref: 7, Handle: 3}
	out := queue.Place{Hook: terms.HookEgress, Pref: 9, Handle: 4}
	must.Be(t, "the first AttachClsact made the qdisc", true, d.attach(t, in, next))
	must.Be(t, "the second AttachClsact made the qdisc", false, d.attach(t, out, next))
	got := d.observe(t)
	program := judge.Program{
		Kind: terms.HookKindClsact, FilterKind: "bpf", Name: "pw_test", ProgramID: next.ID, Direct: true, Match: judge.AnswerEnds,
		Hook: terms.HookIngress, Pref: 7, FilterHandle: 3,
	}
	want := []queue.Filter{{Program: program, Parent: 0xFFFFFFF2, Protocol: 3}, {Program: program, Parent: 0xFFFFFFF3, Protocol: 3}}
	want[1].Hook, want[1].Pref, want[1].FilterHandle = terms.HookEgress, 9, 4
	for i := range got.HookFilters {
		if got.HookFilters[i].Tag == [8]byte{} {
			t.Error("the filter has no tag")
		}
		got.HookFilters[i].Tag = [8]byte{}
	}
	if diff := cmp.Diff(want, got.HookFilters); diff != "" || got.HookQdisc != "clsact" || got.Root() != nil {
		t.Errorf("Observe after AttachClsact (qdisc %q) differs (-want +got):\n%s", got.HookQdisc, diff)
	}
	// Not the last one: the qdisc stays.
	must.OK(t, queue.DetachClsact(d.Handle, d.index, in, true))
	if got := d.observe(t); got.HookQdisc != "clsact" || len(got.HookFilters) != 1 {
		t.Errorf("after the first DetachClsact: qdisc %q, filters %v", got.HookQdisc, got.HookFilters)
	}
	for range 2 { // the second time it is gone
		must.OK(t, queue.DetachClsact(d.Handle, d.index, out, true))
	}
	must.Be(t, "qdiscs after the last DetachClsact", before, d.Run(t, "tc", "qdisc", "show", "dev", "eth0"))
	must.OK(t, queue.DetachClsact(d.Handle, 4711, out, true)) // no such device
}

func TestPrivilegedClsactNeverReplaces(t *testing.T) {
	testutil.RequireQdisc(t, "clsact", "bpf")
	d := newDevice(t)
	ours := testutil.VerdictProgram(t, "pw_test", -1)
	// Another party's, under a name of theirs, at the very place.
	d.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
	d.Run(t, "tc", "filter", "add", "dev", "eth0", "ingress", "pref", "1", "handle", "1", "bpf", "bytecode", "1,6 0 0 4294967295", "flowid", "1:1")
	at := queue.Place{Hook: terms.HookIngress, Pref: 1, Handle: 1}
	before := d.observe(t)
	must.Is(t, "AttachClsact over a filter", queue.ErrFilterExists, must.Err(queue.AttachClsact(d.Handle, d.index, at, queue.Classifier{ProgramFD: ours.FD, Name: "pw_test"})))
	must.Is(t, "AttachMirred over a filter", queue.ErrFilterExists, must.Err(queue.AttachMirred(d.Handle, d.index, at, d.index)))
	must.OK(t, queue.DetachClsact(d.Handle, d.index, at, true))
	after := d.observe(t)
	if diff := cmp.Diff(before.HookFilters, after.HookFilters); diff != "" || len(before.HookFilters) != 1 || after.HookQdisc != "clsact" {
		t.Errorf("the foreign filter changed (-before +after):\n%s", diff)
	}
	// Beside it, and gone again; their filter keeps the qdisc, though we say
	// that it is ours.
	mine := queue.Place{Hook: terms.HookIngress, Pref: 2, Handle: 1}
	must.Be(t, "AttachClsact made a qdisc that was there", false, d.attach(t, mine, ours))
	must.OK(t, queue.DetachClsact(d.Handle, d.index, mine, true))
	must.Match(t, "the foreign filter changed", before.HookFilters, d.observe(t).HookFilters)
	must.Fail(t, "AttachClsact of a program without our prefix", must.Err(queue.AttachClsact(d.Handle, d.index, mine, queue.Classifier{ProgramFD: ours.FD, Name: "other"})))
}

// The kernel would take a filter for clsact's egress hook on an ingress qdisc,
// and put it on the ingress hook.
func TestPrivilegedClsactBesideIngressQdisc(t *testing.T) {
	testutil.RequireQdisc(t, "clsact", "bpf")
	d := newDevice(t)
	d.Run(t, "tc", "qdisc", "add", "dev", "eth0", "ingress")
	p := testutil.VerdictProgram(t, "pw_test", -1)
	_, err := queue.AttachClsact(d.Handle, d.index, queue.Place{Hook: terms.HookEgress, Pref: 1, Handle: 1}, queue.Classifier{ProgramFD: p.FD, Name: "pw_test"})
	must.Is(t, "AttachClsact to egress beside an ingress qdisc", queue.ErrNoEgressHook, err)
	at := queue.Place{Hook: terms.HookIngress, Pref: 1, Handle: 1}
	if d.attach(t, at, p) {
		t.Error("AttachClsact says that it made the ingress qdisc")
	}
	if got := d.observe(t); len(got.HookFilters) != 1 || got.HookQdisc != "ingress" {
		t.Errorf("Observe = qdisc %q, filters %v", got.HookQdisc, got.HookFilters)
	}
	must.OK(t, queue.DetachClsact(d.Handle, d.index, at, true))
	if got := d.observe(t); len(got.HookFilters) != 0 || got.HookQdisc != "ingress" {
		t.Errorf("after DetachClsact: qdisc %q, filters %v", got.HookQdisc, got.HookFilters)
	}
}

// A failed attach takes the qdisc that it made away.
func TestPrivilegedClsactFailureLeavesNothing(t *testing.T) {
	testutil.RequireQdisc(t, "clsact")
	d := newDevice(t)
	at := queue.Place{Hook: terms.HookIngress, Pref: 1, Handle: 1}
	must.Fail(t, "AttachClsact of a bad program", must.Err(queue.AttachClsact(d.Handle, d.index, at, queue.Classifier{ProgramFD: 9999, Name: "pw_test"})))
	must.Be(t, "qdisc that a failed AttachClsact left", "", d.observe(t).HookQdisc)
}

// What a filter of others that is no BPF program does with every packet is seen where it
// matches all, by its actions.
func TestPrivilegedAnswersOfFilters(t *testing.T) {
	testutil.RequireQdisc(t, "clsact")
	for args, want := range map[string]judge.Answer{
		"protocol all u32 match u32 0 0 flowid 1:1":                         judge.AnswerEnds,
		"protocol all u32 match u32 0 0 match u32 0 0 at 12 flowid 1:1":     judge.AnswerEnds,
		"protocol all u32 match u32 0 0 action drop":                        judge.AnswerDrops,
		"protocol all u32 match u32 0 0 action continue":                    judge.AnswerNext,
		"protocol all u32 match u32 0 0 action pipe action drop":            judge.AnswerDrops,
		"protocol all u32 match u32 0 0 action drop random determ ok 2":     judge.AnswerUnknown,
		"protocol all u32 match u32 0 0 action police rate 1mbit burst 10k": judge.AnswerUnknown,
		"protocol all u32 match u32 0 0 at 400 flowid 1:1":                  judge.AnswerUnknown,
		"protocol all u32 match u32 0x0a000000 0xff000000 at 16 flowid 1:1": judge.AnswerUnknown,
		"protocol ip u32 match u32 0 0 flowid 1:1":                          judge.AnswerUnknown,
		"protocol all chain 3 u32 match u32 0 0 flowid 1:1":                 judge.AnswerUnknown,
		"protocol all matchall":                                             judge.AnswerEnds,
		"protocol all matchall action drop":                                 judge.AnswerDrops,
		"protocol all basic flowid 1:1":                                     judge.AnswerEnds,
		"protocol all basic match meta(priority eq 6) flowid 1:1":           judge.AnswerUnknown,
		"protocol all flower flowid 1:1":                                    judge.AnswerEnds,
		"protocol ip flower dst_ip 10.0.0.1 flowid 1:1":                     judge.AnswerUnknown,
		"protocol all bpf bytecode 1,6|0|0|4294967295 flowid 1:1":           judge.AnswerEnds,
		"protocol all bpf bytecode 1,6|0|0|0 flowid 1:1":                    judge.AnswerUnknown,
		"protocol all fw classid 1:1":                                       judge.AnswerUnknown,
	} {
		d := newDevice(t)
		d.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
		all := append(strings.Fields("filter add dev eth0 ingress pref 1"), strings.Fields(args)...)
		for i := range all {
			all[i] = strings.ReplaceAll(all[i], "|", " ")
		}
		if out, err := d.Command(t, "tc", all...).CombinedOutput(); err != nil {
			t.Logf("%s: left out, this kernel refuses it: %s", args, out)
			continue
		}
		got := judge.AnswerNext
		for _, f := range d.observe(t).HookFilters {
			got = got.Then(f.Answer)
		}
		must.Be(t, args, want, got)
	}
}

// Where filters of others send what they match is seen, whichever kind of filter it is. A
// copy is no redirect.
func TestPrivilegedRedirectsOfOthers(t *testing.T) {
	testutil.RequireQdisc(t, "clsact", "mirred")
	for name, tc := range map[string]struct {
		match     string
		does      string
		redirects bool
	}{
		"u32":              {"u32 match u8 0 0", "egress redirect", true},
		"u32 to ingress":   {"u32 match u8 0 0", "ingress redirect", true},
		"u32, a copy":      {"u32 match u8 0 0", "egress mirror", false},
		"matchall":         {"matchall", "egress redirect", true},
		"matchall, a copy": {"matchall", "egress mirror", false},
		"flower":           {"flower", "egress redirect", true},
	} {
		d := newDevice(t)
		d.Run(t, "ip", "link", "add", "tap0", "type", "veth", "peer", "name", "tap1")
		d.Run(t, "tc", "qdisc", "add", "dev", "eth0", "ingress")
		args := "filter add dev eth0 parent ffff: protocol all " + tc.match + " action mirred " + tc.does + " dev tap0"
		if out, err := d.Command(t, "tc", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Logf("%s: left out, this kernel refuses it: %s", name, out)
			continue
		}
		want := 0
		if tc.redirects {
			want = d.Interface(t, "tap0").Index
		}
		got := 0
		for _, f := range d.observe(t).HookFilters {
			got = max(got, f.RedirectIndex)
			if queue.Ours(&f) {
				t.Errorf("%s: %+v is taken for podweir's", name, f)
			}
		}
		must.Be(t, name+": device it sends to", want, got)
	}
}

// redirectReachesIFB reports whether a device answers whose packets
// bpf_redirect sends by way of an ifb. On 6.1 it does not.
func redirectReachesIFB(t *testing.T) bool {
	t.Helper()
	d := newDevice(t)
	ifb := must.Get(d.Handle.EnsureIFB(d.Interface(t, "eth0")))(t)
	prog := testutil.RedirectProgram(t, "pw_redirect", int32(ifb.Index))
	at := queue.Place{Hook: terms.HookIngress, Pref: queue.RedirectPref, Handle: queue.FilterHandle}
	must.OK(t, must.Err(queue.AttachClsact(d.Handle, d.index, at, queue.Classifier{ProgramFD: prog.FD, Name: "pw_redirect"})))
	return d.peer.Command(t, "ping", "-c3", "-i0.1", "-W1", "-s1400", "10.9.0.1").Run() == nil
}

func TestPrivilegedProbeRedirect(t *testing.T) {
	testutil.RequireQdisc(t, "clsact", "bpf", "ifb")
	cases := map[string]struct {
		prog testutil.Program
		want bool
	}{
		"redirect to the ifb":      {testutil.RedirectProgram(t, "pw_redirect", queue.ProbeIFBIndex), true},
		"redirect to nowhere":      {testutil.RedirectProgram(t, "pw_redirect", 4711), false},
		"packets go past the ifb":  {testutil.VerdictProgram(t, "pw_redirect", -1), false},
		"packets are all dropped":  {testutil.VerdictProgram(t, "pw_redirect", 2), false},
		"redirect to the pair end": {testutil.RedirectProgram(t, "pw_redirect", 2), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			able := !c.want || redirectReachesIFB(t)
			must.Be(t, "ProbeRedirect", c.want && able, must.Get(queue.ProbeRedirect(c.prog.FD))(t))
			if !able {
				testutil.SkipFeature(t, "bpf_redirect to an ifb")
			}
		})
	}
}

// TestPrivilegedProbeThatNeverLeft: what was lost before the hook is no answer, which
// would be kept until the next boot.
func TestPrivilegedProbeThatNeverLeft(t *testing.T) {
	testutil.RequireQdisc(t, "clsact", "bpf", "ifb")
	redirect, drop := testutil.RedirectProgram(t, "pw_redirect", queue.ProbeIFBIndex), testutil.VerdictProgram(t, "pw_test", 2)
	ns := testutil.NewNetNS(t)
	err := ns.Do(func() error {
		ok, err := queue.ProbeRedirectWith(ns.Handle, redirect.FD, func(near hostif.Interface) error {
			at := queue.Place{Hook: terms.HookEgress, Pref: 1, Handle: 1}
			_, err := queue.AttachClsact(ns.Handle, near.Index, at, queue.Classifier{ProgramFD: drop.FD, Name: "pw_test"})
			return err
		})
		if ok {
			t.Error("ProbeRedirect = true, want an error")
		}
		return err
	})
	if err == nil {
		t.Fatal("ProbeRedirect = nil, want an error")
	}
	var sent, all int
	_, count, _ := strings.Cut(err.Error(), "probe0 has sent ")
	// A slow machine's kernel has sent a multicast report of its own by then, 90 bytes.
	if _, bad := fmt.Sscanf(count, "%d of %d bytes", &sent, &all); bad != nil || sent > 200 || all < 10_000 {
		t.Errorf("ProbeRedirect = %v, want an error that says that hardly anything was sent", err)
	}
}

func TestPrivilegedProbe(t *testing.T) {
	testutil.RequireRoot(t)
	got := must.Get(queue.Probe())(t)
	t.Logf("%+v", got)
	// What every kernel that podweir runs on has; and each answer must agree
	// with an attempt by tc.
	if !got.PfifoFast || !got.Bfifo {
		t.Errorf("Probe = %+v, want pfifo_fast and bfifo, which are never modules", got)
	}
	d := newDevice(t)
	for kind, has := range map[string]bool{
		"tbf rate 1mbit burst 9k limit 9k": got.TBF, "htb": got.HTB, "prio": got.Prio, "fq": got.FQ,
		"clsact": got.Clsact,
	} {
		cmd := d.Command(t, "bash", "-c", "tc qdisc add dev eth0 "+where(kind)+kind)
		out, err := cmd.CombinedOutput()
		must.Be(t, fmt.Sprintf("%q as tc has it: %s", kind, out), err == nil, has)
		if err == nil {
			d.Run(t, "bash", "-c", "tc qdisc del dev eth0 "+map[bool]string{true: "clsact", false: "root"}[kind == "clsact"])
		}
	}
	ifb := d.Command(t, "ip", "link", "add", "probe", "type", "ifb").Run() == nil
	must.Be(t, "whether Probe finds IFB, as ip says", got.IFB, ifb)
}

func where(kind string) string {
	if kind == "clsact" {
		return ""
	}
	return "root "
}
