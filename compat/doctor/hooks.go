// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// strangers are the programs on a hook that are neither podweir's nor, by name, the
// CNI's.
func (f *Facts) strangers(c *judge.Chain) []judge.Program {
	return slices.DeleteFunc(c.Others(), func(p judge.Program) bool { return f.Profile.Owns(c.Hook, &p) })
}

func checkAhead(f *Facts) Outcome {
	var bad, ends, pods []string
	n := 0
	for _, a := range f.Attached {
		if !a.Redirected {
			continue
		}
		n++
		for _, p := range a.Ahead {
			what := a.name() + ": " + p.String()
			if p.Answer != judge.AnswerUnknown {
				what += " " + p.Answer.String()
				ends = append(ends, what)
			}
			bad, pods = append(bad, what), append(pods, a.Pod)
		}
	}
	switch {
	case len(ends) > 0:
		return fails(shorten(ends)+", before the redirect to the ifb", "no program, or programs that answer TCX_NEXT (-1)",
			"podweir repair polices ahead of it (Linux 6.6 or newer); to have the queue back, have its owner let packets on (-1), or take it off: bpftool prog show id NUMBER, or in the pod's namespace tc filter show dev eth0 ingress, shows it", bad...).of(pods)
	case len(bad) > 0:
		return breaks(shorten(bad)+" before the redirect to the ifb", "no program, or programs that answer TCX_NEXT (-1)",
			"podweir status shows whether packets go past podweir (PAST); then ask its owner", bad...).of(pods)
	case n == 0:
		return holds("no limit waits on an ifb")
	}
	return holds(fmt.Sprintf("no program runs before %d redirects", n))
}

func checkOrder(f *Facts) Outcome {
	devices := map[string]*Device{}
	for i := range f.Devices {
		devices[f.Devices[i].Name] = &f.Devices[i]
	}
	var starved, behind, blind, pods []string
	looked := 0
	for _, a := range f.Attached {
		if a.Program == 0 {
			continue
		}
		looked++
		where := a.name()
		d := devices[a.Device]
		if d == nil {
			blind = append(blind, where+": device "+a.Device+" was not seen")
			continue
		}
		hook := &d.In
		if a.Hook == terms.HookEgress {
			hook = &d.Out
		}
		switch r := hook.Stand(a.Program, f.Profile); r.Standing {
		case judge.Starved, judge.Missing:
			starved, pods = append(starved, where+": "+r.String()), append(pods, a.Pod)
		case judge.Behind:
			behind, pods = append(behind, where+": "+r.String()), append(pods, a.Pod)
		case judge.NotKnown:
			blind = append(blind, where+": "+hook.Unread)
		case judge.First:
		}
	}
	const expected, fix = "podweir first on every hook", "podweir repair: podweir goes back to the head"
	switch {
	case len(starved) > 0:
		return breaks(shorten(starved), expected, fix, slices.Concat(starved, behind)...).of(pods)
	case len(blind) > 0 || f.DevicesErr != nil && looked > 0:
		return unknown(shorten(blind))
	case len(behind) > 0:
		return warns(shorten(behind), expected, fix, behind...).of(pods)
	case looked == 0:
		return holds("podweir is on no shared host-side hook")
	}
	return holds(fmt.Sprintf("first on %d hooks", looked))
}

// showing is the command that shows a program of others: bpftool shows no filter that is
// no BPF program.
func showing(device string, hook terms.Hook, p *judge.Program) string {
	if p.ProgramID == 0 {
		return fmt.Sprintf("tc filter show dev %s %v", device, hook)
	}
	return fmt.Sprintf("bpftool prog show id %d", p.ProgramID)
}

func checkStrangers(f *Facts) Outcome {
	var bad, blind []string
	show := ""
	for _, d := range f.Devices {
		for _, h := range []judge.Chain{d.In, d.Out} {
			if h.Unread != "" {
				blind = append(blind, d.Name+": "+h.Unread)
			}
			others := f.strangers(&h)
			if d.XDP != nil && h.Hook == d.XDP.Hook {
				others = append(others, *d.XDP)
			}
			for _, p := range others {
				if p.Answer == judge.AnswerNext {
					continue
				}
				what := fmt.Sprintf("%s %v: %v", d.Name, h.Hook, p)
				if p.Answer != judge.AnswerUnknown {
					what += " " + p.Answer.String()
				}
				bad = append(bad, what)
				show = cmp.Or(show, showing(d.Name, h.Hook, &p))
			}
		}
	}
	for _, a := range f.Attached { // in pods: theirs are their own, unless nothing passes
		if a.Blocked != "" {
			bad, show = append(bad, a.name()+": "+a.Blocked), cmp.Or(show, "podweir explain "+a.Pod)
		}
	}
	switch {
	case len(bad) > 0:
		return breaks(shorten(bad), "programs of "+f.Profile.Title+" and podweir", "on the node: "+show, bad...)
	case len(blind) > 0:
		return unknown(shorten(blind))
	}
	return holds(fmt.Sprintf("none on %d devices", len(f.Devices)))
}

func checkVerdicts(f *Facts) Outcome {
	if f.VerdictsErr != nil {
		return unknown(f.VerdictsErr.Error())
	}
	if len(f.Verdicts) == 0 {
		return skip("no program was tried")
	}
	var bad []string
	for _, v := range f.Verdicts {
		if v.Wrong != "" {
			bad = append(bad, v.Program+": "+v.Wrong)
		}
	}
	if len(bad) > 0 {
		return breaks(strings.Join(bad, "; "), "-1 (next) to packets that may pass", "podweir detach, and report it", bad...)
	}
	return holds(fmt.Sprintf("%d programs answer -1", len(f.Verdicts)))
}

// kernelQdiscs are the kinds that a device may have by default.
var kernelQdiscs = []string{"noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "clsact", "ingress"}

// readQueues looks twice where a device that podweir has no settled attachment on has a
// foreign queue: before ADD has finished a queue of podweir's, nothing shows whose it is.
func (f *Facts) readQueues(ctx context.Context, k Kernel, settle time.Duration) {
	unwelcome := f.unwelcome()
	if !slices.ContainsFunc(f.Devices, func(d Device) bool {
		return slices.ContainsFunc(d.Qdiscs, unwelcome) && f.podAt(d.Name) == d.Name
	}) {
		return
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
	}
	again, err := k.Devices(ctx)
	if err != nil {
		return // the first reading counts
	}
	for i := range f.Devices {
		d := &f.Devices[i]
		d.Qdiscs = slices.DeleteFunc(d.Qdiscs, func(q Qdisc) bool {
			return unwelcome(q) && !slices.ContainsFunc(again, func(a Device) bool {
				return a.Name == d.Name && slices.ContainsFunc(a.Qdiscs, func(still Qdisc) bool { return unwelcome(still) && still.Kind == q.Kind })
			})
		})
	}
}

// ofOthers is a root queue that neither podweir nor the kernel has put there.
func ofOthers(q Qdisc) bool { return q.Root && !q.Ours && !slices.Contains(kernelQdiscs, q.Kind) }

// limiters are the queues by which others enforce a limit of ingress.
var limiters = map[terms.Shaper]string{terms.ShaperCalico: "tbf", terms.ShaperOVN: "htb"}

// unwelcome says which queues of others take something from podweir: Calico's do not
// where they hold back nothing, and those of whom ingress is left to.
func (f *Facts) unwelcome() func(Qdisc) bool {
	both, others := f.directions()
	return func(q Qdisc) bool {
		accepted := q.Kind == limiters[others.By] && (others.By == terms.ShaperCalico && !holdsBack(q) || both[1].left == others.By)
		return ofOthers(q) && !accepted
	}
}

func checkRootQdiscs(f *Facts) Outcome {
	unwelcome, others := f.unwelcome(), f.Node.OtherShapers()
	var bad, pods []string
	n := 0
	for _, d := range f.Devices {
		for _, q := range d.Qdiscs {
			switch {
			case unwelcome(q):
				bad, pods = append(bad, d.Name+" has "+q.Kind), append(pods, f.podAt(d.Name))
			case ofOthers(q):
				n++
			}
		}
	}
	switch {
	case len(bad) > 0:
		return breaks(shorten(bad), "podweir's queue, or none", rootQdiscFix(others.By, pods[0]), bad...).of(pods)
	case n > 0:
		return holds(fmt.Sprintf("%d of %s's, which hold back nothing of podweir's, on %d devices", n, others.By.Title(), len(f.Devices)))
	}
	return holds(fmt.Sprintf("none on %d devices", len(f.Devices)))
}

// rootQdiscFix says what to do about a foreign queue. Felix would put its own back at
// once, again and again, if replaceQdisc replaced it. What Open vSwitch does is not known.
func rootQdiscFix(by terms.Shaper, pod string) string {
	switch by {
	case terms.ShaperOVN:
		return "if it is " + by.Title() + "'s, " + profiles.OneShaperBeside(by) + "; else find its owner"
	case terms.ShaperCalico:
		if !strings.Contains(pod, "/") { // the name of a device
			pod = "NAMESPACE/POD"
		}
		return "if the pod's limit is podweir's to enforce, take Calico's away: " + profiles.LiftFelixLimit(pod)
	default:
		return "find its owner; replaceQdisc: true gives it to podweir"
	}
}
