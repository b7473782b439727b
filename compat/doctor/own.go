// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/terms"
)

// counted is broken by every packet of a kind, and then names a remedy.
func counted(remedy string, packets func(a *Attachment) uint64) func(*Facts) Outcome {
	return ofLimits(func(f *Facts) Outcome {
		var bad, pods, unread []string
		for i := range f.Attached {
			a := &f.Attached[i]
			if n := packets(a); n > 0 {
				bad, pods = append(bad, fmt.Sprintf("%s: %d packets", a.name(), n)), append(pods, a.Pod)
			}
			if a.Uncounted != "" {
				unread = append(unread, a.name()+": "+a.Uncounted)
			}
		}
		switch {
		case len(bad) > 0:
			return breaks(shorten(bad), "none", remedy, bad...).of(pods)
		case len(unread) > 0:
			return unknown("counters cannot be read: " + shorten(unread))
		}
		return holds("none")
	})
}

func checkCeilings(f *Facts) Outcome {
	var bad, pods []string
	for _, a := range f.Attached {
		if a.NoCeiling != "" {
			bad, pods = append(bad, a.Pod+": "+a.NoCeiling), append(pods, a.Pod)
		}
	}
	if len(bad) > 0 {
		return breaks("without a ceiling: "+shorten(bad), "a ceiling", "drop CAP_NET_RAW from pods that are not trusted; Linux 6.6 or newer where another program is on the hook", bad...).of(pods)
	}
	return holds("every egress limit that needs a ceiling has one")
}

// checkGroups looks at the limits that pods of a namespace have together.
func checkGroups(f *Facts) Outcome {
	var bad, pods []string
	groups, undivided := map[string]*terms.Limit{}, map[string]terms.Limit{}
	shares := map[string]int{}
	for i := range f.Attached {
		a := &f.Attached[i]
		namespace, _, _ := strings.Cut(a.Pod, "/")
		group := fmt.Sprintf("%s of namespace %s", a.Direction, namespace)
		switch {
		case a.Group == 0 || a.Observed():
			continue
		case a.Share == 0:
			why := cmp.Or(a.NoShare, "its queue is not whole")
			bad, pods = append(bad, a.name()+": it has no share of the limit of its namespace, only its own limit: "+why), append(pods, a.Pod)
		case a.NoGroupCeiling != "":
			bad, pods = append(bad, a.name()+": nothing holds the limit while no agent divides it: "+a.NoGroupCeiling), append(pods, a.Pod)
		}
		if g := groups[group]; g == nil || a.Group < g.Group { // of different ones the lowest holds
			groups[group] = &a.Limit
		}
		if a.Share != 0 {
			shares[group]++
		}
		if !a.Divided && a.NoShare == "" {
			sum := undivided[group]
			sum.Share += a.Share
			undivided[group] = sum
		}
	}
	for _, group := range slices.Sorted(maps.Keys(undivided)) {
		bad = append(bad, fmt.Sprintf("no agent divides %s; the shares of its pods amount to %v", group, undivided[group].Share))
	}
	switch {
	case len(bad) > 0:
		return breaks(shorten(bad), "each divided among all pods of the namespace", "podweir explain PW614", bad...).of(pods)
	case len(groups) > 0:
		text := []string{fmt.Sprintf("%d limits, divided among all pods of their namespaces", len(groups))}
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			if coarse := terms.CoarseEach(groups[group].Group, shares[group]); coarse != "" {
				text = append(text, group+": "+coarse)
			}
		}
		return holds(strings.Join(text, "; "))
	}
	return holds("no namespace has a limit on this node")
}

// faults is a check of limits with which some of these faults is, and says how many lines of them begin
// and what should be; fine is the finding if there are none.
func faults(begin, expected string, fine func(*Facts) Outcome, of ...terms.Fault) func(*Facts) Outcome {
	return ofLimits(func(f *Facts) Outcome {
		var bad []terms.Trouble
		held := true
		for _, t := range f.Troubles {
			if slices.Contains(of, t.Fault) {
				bad, held = append(bad, t), held && t.Fault == terms.FaultHeld
			}
		}
		// An agent that cannot read counters looks for networks all the same.
		if len(bad) == 0 || bad[0].Fault == terms.FaultOverdue && !f.Watched && !f.agentRuns() {
			return fine(f)
		}
		var first, all, pods []string
		for i := range bad {
			name := cmp.Or(f.podOf(bad[i].Container), bad[i].Pod)
			pods = append(pods, name)
			if since := bad[i].Since; !since.IsZero() && bad[i].Fault != terms.FaultUnshaped { // its reason is enough
				name += " since " + since.UTC().Format(time.RFC3339)
			}
			first = append(first, name+": "+differences(bad[i].Causes, len(bad)))
			all = append(all, name+": "+strings.Join(bad[i].Causes, ", "))
		}
		found := breaks(begin+shorten(first), expected, f.cureFor(bad), all...).of(pods)
		if held {
			found.Status = Warn
		}
		return found
	})
}

// differences are those of a pod that fit a screen: the first is what podweir would do,
// and the next, for which there is no room beside several pods, often the cause.
func differences(drift []string, pods int) string {
	shown := 2
	if pods > 2 {
		shown = 1
	}
	text := strings.Join(drift[:min(len(drift), shown)], ", ")
	if n := len(drift) - shown; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

func allShaped(f *Facts) Outcome {
	if f.Unwritable != nil {
		fix := "mend the file system"
		if f.agentRuns() {
			fix += "; the agent limits running pods by itself"
		}
		return warns("pods that podweir-cni could not limit may be missing: "+f.Unwritable.Error(), "word of them", fix)
	}
	n := 0
	for i := range f.Attached {
		if f.Attached[i].Observed() {
			n++
		}
	}
	if n > 0 {
		return holds(fmt.Sprintf("%d limits, and %d that are observed only, as is wanted (enforce: observe)", len(f.Attached)-n, n))
	}
	return holds(fmt.Sprintf("%d limits", len(f.Attached)))
}

func noneDiffers(f *Facts) Outcome {
	seen := []string{fmt.Sprintf("%d limits", len(f.Attached))}
	for i := range f.Attached {
		if a := &f.Attached[i]; len(a.Kept) > 0 {
			seen = append(seen, fmt.Sprintf("%s keeps %s, which podweir did not set", a.Pod, strings.Join(a.Kept, " ")))
		}
	}
	return holds(strings.Join(seen, "; "))
}

func checkPolicing(f *Facts) Outcome {
	var bad, pods []string
	requested := 0
	for _, a := range f.Attached {
		switch {
		case a.Queue.Is != terms.QueueNone || a.Observed():
		case a.Policed == "":
			requested++
		default:
			bad, pods = append(bad, a.name()+": "+a.Policed), append(pods, a.Pod)
		}
	}
	switch {
	case len(bad) > 0:
		return breaks(shorten(bad), "a queue", "take away what stands in its place, then podweir repair; what the kernel lacks PW106 names", bad...).of(pods)
	case requested > 0:
		return holds(fmt.Sprintf("every limit that is to have one; %d are policed, as their configuration wants", requested))
	}
	return holds("every limit has a queue")
}
