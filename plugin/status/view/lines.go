// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view

import (
	"fmt"
	"slices"
	"strings"
)

// What to do where packets go past podweir.
const (
	curePast = "podweir doctor --probe names who takes them there"
	// pastCeiling follows what goes past a queue that has a ceiling behind it.
	pastCeiling = "a process in the pod goes around the queue with a packet socket, or took the queue away; the ceiling on the host side keeps the limit"
)

// Looked takes what the pods carried between two looks: a pod whose packets go past
// podweir, with nothing else to limit them, is not limited.
func (n *Node) Looked(rates []PodRate) {
	n.Rates = rates
	for i := range rates {
		r := &rates[i]
		if r.PastBitsPerSecond == 0 || r.Ceiling || r.Observed || r.State != "" {
			continue
		}
		r.State = NotLimited
		n.Add(&Pod{Node: r.Node, Pod: r.Pod, State: NotLimited, Cure: curePast, Cause: fmt.Sprintf(
			"%s of %s: its device carries %s past podweir, which sees %s", r.Direction, r.Interface, Rate(r.PastBitsPerSecond), Rate(r.SentBitsPerSecond))})
	}
	n.Sort()
}

// word says in a word or two what a limit does now.
func (r *PodRate) word() string {
	switch {
	case r.State != "":
		return words[r.State]
	case r.Blocked != "":
		return "BLOCKED"
	case r.Observed:
		return words[Observed]
	case r.Share() >= atLimitShare:
		return "at limit"
	case r.DropsPerSecond > 0:
		return "reaches it"
	case idle(r):
		return "idle"
	default:
		return "below it"
	}
}

// notable says that a line is worth one among many.
func (r *PodRate) notable() bool {
	return !slices.Contains([]string{"idle", "below it", words[Observed]}, r.word()) || r.PastBitsPerSecond > 0
}

func line(pod, direction, asked, limit, now, drops, past, word string) string {
	return strings.TrimRight(fmt.Sprintf("%s %-7s %6s %6s %6s %6s %6s  %s", Pad(pod, 24), direction, asked, limit, now, drops, past, word), " ") + "\n"
}

// lines is a line for each limit: what the pod asks for, what is in force, what it carries
// now, packets that were dropped since it was attached, what goes past podweir now, and a
// verdict. Among many pods only what is notable has one.
func (n *Node) lines(onlyNotable bool) string {
	var rows, notes strings.Builder
	for i := range n.Rates {
		r := &n.Rates[i]
		if r.Error != "" || onlyNotable && !r.notable() {
			continue
		}
		name := Printable(r.Pod)
		if r.Interface != "eth0" {
			name += " " + Printable(r.Interface)
		}
		asked := float64(r.AskedBitsPerSecond)
		if r.DecidedBy == "" {
			asked = float64(r.CapBitsPerSecond)
		}
		rows.WriteString(line(name, r.Direction, orNone(asked), Short(float64(r.CapBitsPerSecond)), Short(r.SentBitsPerSecond),
			Short(float64(r.Drops)), Short(r.PastBitsPerSecond), r.word()))
		if r.PastBitsPerSecond > 0 && r.Ceiling {
			notes.WriteString(Paragraph("", fmt.Sprintf("%s %s: %s go past its queue: %s.", r.Pod, r.Direction, Rate(r.PastBitsPerSecond), pastCeiling), 0))
		}
		if r.Blocked != "" {
			notes.WriteString(Paragraph("", fmt.Sprintf("%s %s: %s. That is not podweir.", r.Pod, r.Direction, r.Blocked), 0))
		}
	}
	if rows.Len() == 0 {
		return notes.String()
	}
	return "\n" + line("POD", "DIR", "ASKED", "LIMIT", "NOW", "DROPS", "PAST", "(bit/s)") + rows.String() + notes.String()
}

func orNone(bitsPerSecond float64) string {
	if bitsPerSecond == 0 {
		return "-"
	}
	return Short(bitsPerSecond)
}

// decided says who decided limits that are not what pods ask for, and in place of what.
func decided(pods []Pod) string {
	var deciders []string
	limits := map[string][]string{}
	for i := range pods {
		for _, l := range pods[i].Limits {
			if l.DecidedBy == "" || l.AskedBitsPerSecond == 0 {
				continue
			}
			if limits[l.DecidedBy] == nil {
				deciders = append(deciders, l.DecidedBy)
			}
			limits[l.DecidedBy] = append(limits[l.DecidedBy], fmt.Sprintf("%s %s has %s in place of %s", pods[i].Pod, l.Direction,
				Rate(float64(l.RateBitsPerSecond)), Rate(float64(l.AskedBitsPerSecond))))
		}
	}
	var b strings.Builder
	for _, by := range deciders {
		names, more := limits[by], ""
		if k := len(names) - maxRough; k > 0 {
			names, more = names[:maxRough], fmt.Sprintf(" and %d more", k)
		}
		b.WriteString(Paragraph("", "Decided by "+by+": "+strings.Join(names, ", ")+more+".", 0))
	}
	return b.String()
}
