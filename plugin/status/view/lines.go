// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// What to do where packets go past podweir.
const (
	curePast  = "podweir doctor names the programs of others on the way (PW501, PW502, PW506)"
	cureXDP   = "have its owner pass packets on, or give the pod ingressPlace: ifb, which limits what comes by XDP, too"
	cureAhead = "have its owner let packets on (-1), or take it off: podweir explain PW506"
	// pastCeiling follows what goes past a queue that has a ceiling behind it.
	pastCeiling = "a process in the pod goes around the queue with a packet socket, or took the queue away; the ceiling on the host side keeps the limit"
)

// Ahead is what is added to a cause where packets go past podweir, with the cure, by who runs
// before the redirect to the ifb; "" is nobody.
func Ahead(who string) (text, cure string) {
	if who == "" {
		return "", curePast
	}
	return "; before the redirect runs " + who, cureAhead
}

// Looked takes a look at the same pods from before: what they carried since then, and that
// a pod whose packets go past podweir, with nothing else to limit them, is not limited.
func (n *Status) Looked(before *Status) {
	rates := Rates(before, n)
	n.Rates, n.Losing = rates, Losing(before.Losses, n.Losses)
	for i := range n.Others {
		o := &n.Others[i]
		at := slices.IndexFunc(before.Others, func(b Other) bool { return b.Name == o.Name && b.NetNSPath == o.NetNSPath })
		if seconds := n.Time.Sub(before.Time).Seconds(); at >= 0 && seconds > 0 {
			was := &before.Others[at]
			o.EgressBitsPerSecond = 8 * float64(o.EgressBytes-min(was.EgressBytes, o.EgressBytes)) / seconds
			o.IngressBitsPerSecond = 8 * float64(o.IngressBytes-min(was.IngressBytes, o.IngressBytes)) / seconds
		}
	}
	broken := n.Broken()
	for i := range rates {
		r := &rates[i]
		if !r.goesPast() || slices.ContainsFunc(broken, func(p Pod) bool { return p.Pod == r.Pod }) {
			continue
		}
		who, cure := Ahead(r.Ahead)
		if xdp := n.sentPast(); who == "" && r.Direction.Is == terms.Ingress && r.Side.Is == terms.SideHost && xdp != "" {
			who, cure = "; "+xdp+" may send packets to the pod's device, which no queue sees", cureXDP
		}
		n.Add(&Pod{Node: r.Node, Pod: r.Pod, State: NotLimited, Cure: cure, Cause: fmt.Sprintf(
			"%s of %s: its device carries %s past podweir, which sees %s%s", r.Direction, r.Interface, Rate(r.PastBitsPerSecond), Rate(r.SentBitsPerSecond), who)})
	}
	n.Sort()
}

// sentPast names the programs of the node's devices that may send packets past a queue on the host side, "" if there is none.
func (n *Status) sentPast() string {
	var all []string
	for i := range n.Losses {
		if n.Losses[i].Past {
			all = append(all, n.Losses[i].Where)
		}
	}
	return few(all, ", ")
}

// word says in a word or two what a limit does now.
func (r *PodRate) word() string {
	switch {
	case r.State != "":
		return words[r.State]
	case r.Blocked != "":
		return "BLOCKED"
	case r.Observed():
		return words[Observed]
	case r.Share() >= atLimitShare:
		return "at limit"
	case r.DropsPerSecond > 0:
		return "reaches it"
	case idle(r) && r.ExemptBitsPerSecond > 0:
		return "exempt"
	case idle(r):
		return "idle"
	default:
		return "below it"
	}
}

// notable says that a line is worth one among many. A pod that is not limited as it
// should be is named above, with its cause.
func (r *PodRate) notable() bool {
	return r.PastBitsPerSecond > 0 || r.Blocked != "" || r.State == "" && !slices.Contains([]string{"idle", "exempt", "below it", words[Observed]}, r.word())
}

func line(pod, direction, asked, limit, now, drops, past, word string) string {
	return strings.TrimRight(fmt.Sprintf("%s %-7s %6s %6s %6s %6s %6s  %s", pod, direction, asked, limit, now, drops, past, word), " ") + "\n"
}

// lines is a line for each limit: what the pod asks for, what is in force, what it carries
// now, packets that were dropped since it was attached, what goes past podweir now, and a
// verdict. Among many pods only what is notable has one.
func (n *Status) lines(onlyNotable bool) string {
	var rows, notes strings.Builder
	var names []string
	for i := range n.Rates {
		names = append(names, n.Rates[i].label())
	}
	for i := range n.Others {
		names = append(names, terms.Printable(n.Others[i].Title()))
	}
	pad := apart(names, 24)
	for i := range n.Rates {
		r := &n.Rates[i]
		if r.Error != "" || onlyNotable && !r.notable() {
			continue
		}
		asked := r.Asked
		if r.DecidedBy == "" {
			asked = r.Rate
		}
		wanted := orNone(float64(asked))
		if r.AskedText != "" {
			wanted = "?"
		}
		rows.WriteString(line(pad(r.label()), r.Direction.String(), wanted, Short(float64(r.Rate)), Short(r.SentBitsPerSecond),
			Short(float64(r.Drops)), Short(r.PastBitsPerSecond), r.word()))
		if r.PastBitsPerSecond > 0 && r.Ceiling {
			notes.WriteString(terms.Paragraph("", fmt.Sprintf("%s %s: %s go past its queue: %s.", r.Pod, r.Direction, Rate(r.PastBitsPerSecond), pastCeiling), 0))
		}
		if r.Blocked != "" {
			notes.WriteString(terms.Paragraph("", fmt.Sprintf("%s %s: %s. That is not podweir.", r.Pod, r.Direction, r.Blocked), 0))
		}
	}
	for i := range n.Others {
		o := &n.Others[i]
		word := "no limit"
		if o.Lacks {
			word = words[NotLimited]
		} else if onlyNotable {
			continue
		} else if o.LeftTo != "" {
			word = "left to " + o.LeftTo
		}
		name := terms.Printable(o.Title())
		if slices.ContainsFunc(n.Rates, func(r PodRate) bool { return r.Pod == o.Title() && r.Error == "" }) { // one of its devices has a limit
			name += " " + terms.Printable(o.Name)
		}
		for _, way := range []struct {
			direction terms.Direction
			rate      float64
		}{{terms.Egress, o.EgressBitsPerSecond}, {terms.Ingress, o.IngressBitsPerSecond}} {
			rows.WriteString(line(pad(name), way.direction.String(), Cut(terms.Printable(o.asked(way.direction)), 6), "-", Short(way.rate), "-", "-", word))
		}
	}
	if rows.Len() == 0 {
		return notes.String()
	}
	return "\n" + line(Pad("POD", 24), "DIR", "ASKED", "LIMIT", "NOW", "DROPS", "PAST", "(bit/s)") + rows.String() + notes.String()
}

// some is a sentence about limits, each with what is to be said of it; "" if there are none.
func some(pods []Pod, begin, separator, end string, of func(*Limit) (text string, is bool)) string {
	var all []string
	for i := range pods {
		for j := range pods[i].Limits {
			l := &pods[i].Limits[j]
			if text, is := of(l); is {
				all = append(all, pods[i].Pod+" "+l.Direction.String()+text)
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	return begin + few(all, separator) + end
}

// went says what went past podweir before.
func went(pods []Pod) string {
	return some(pods, "Went past podweir, as the agent saw it: ", "; ", ".", func(l *Limit) (string, bool) {
		return fmt.Sprintf(": %v from %s to %s", units.Bytes(l.PastBytes), l.PastSince.UTC().Format(time.RFC3339), l.PastLast.UTC().Format(time.RFC3339)), l.PastBytes > 0
	})
}

func orNone(bitsPerSecond float64) string {
	if bitsPerSecond == 0 {
		return "-"
	}
	return Short(bitsPerSecond)
}

// Decided says who decided limits that are not what pods ask for, and in place of what.
func Decided(pods []Pod) string {
	var deciders []string
	limits := map[string][]string{}
	for i := range pods {
		for _, l := range pods[i].Limits {
			wanted := Rate(float64(l.Asked))
			if l.AskedText != "" {
				wanted = fmt.Sprintf("%q (%s), where %s is accepted", l.AskedText, cmp.Or(l.AskedIn, "its annotation"), units.AcceptedRate)
			} else if l.DecidedBy == "" || l.Asked == 0 {
				continue
			}
			if limits[l.DecidedBy] == nil {
				deciders = append(deciders, l.DecidedBy)
			}
			limits[l.DecidedBy] = append(limits[l.DecidedBy], fmt.Sprintf("%s %s has %s in place of %s", pods[i].Pod, l.Direction,
				Rate(float64(l.Rate)), wanted))
		}
	}
	var b strings.Builder
	for _, by := range deciders {
		b.WriteString(terms.Paragraph("", "Decided by "+by+": "+few(limits[by], ", ")+".", 0))
	}
	return b.String()
}

// next says that no limit is at work now, since when none was, and where to look next; "" if
// one is, or a pod is not limited as it should be.
func (n *Status) next() string {
	if len(n.Rates) == 0 || len(n.Broken()) > 0 || n.less() > 0 { // a low limit slows what is idle now
		return ""
	}
	var since time.Time
	for i := range n.Rates {
		r := &n.Rates[i]
		if r.notable() {
			return ""
		}
	}
	dropped := false
	for i := range n.Pods {
		for j := range n.Pods[i].Limits {
			l := &n.Pods[i].Limits[j]
			dropped = dropped || l.Drops > 0 || l.Attached.IsZero() || l.Held()
			if l.Attached.After(since) {
				since = l.Attached
			}
		}
	}
	text := "No limit is at work now: what is slow or lost is not podweir. "
	if !dropped && !since.After(n.Time) { // else the clock was set back
		text = "Limits idle since " + since.UTC().Format(time.RFC3339) + ": what is slow or lost is not podweir. "
	}
	if len(n.Losing) > 0 {
		return text + "Packets are lost elsewhere on this node: " + few(n.Losing, "; ") + "."
	}
	return text + terms.Runnable("Next: podweir explain NAMESPACE/POD", n.Run) + " has the loss counters of the pod's devices and rules, and its MTU; then the other end, and the node's uplink."
}
