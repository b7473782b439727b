// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

func ownChecks() []Check {
	return []Check{
		{
			Code: "PW601", Title: "no pod with a limit runs without it", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "failures that podweir-cni and the agent recorded for pods with a limit",
			Why:   "with onError open a pod starts unshaped when podweir cannot shape it, and a running pod can get an annotation that cannot be read",
			Mend:  "Read the reason and mend it; docs/reference/errors.md has the reasons. The agent then sets the limit by itself. Without an agent, recreate the pod.",
			run:   checkFailures,
		},
		{
			Code: "PW602", Title: "every limit is attached as podweir recorded it", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "the difference between what podweir recorded and what is on the devices, as podweir status shows it",
			Why:   "another program changed or removed a queue or a program of podweir's, or another release attached the pod and the agent has not seen it since",
			Mend:  "podweir repair --dry-run says what differs, podweir repair corrects it. If it happens again, PW501, PW502 and PW505 name the other program.",
			run:   checkAttached,
		},
		{
			Code: "PW603", Title: "every limit has a queue", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "limits that police because no queue was available; not those that are to police by their configuration",
			Why:   "policing drops instead of delaying: TCP gets far less than its limit",
			Mend: "The reason stands behind each limit: another program's queue on the device, or a kind of queue that the kernel lacks (PW106). " +
				"Take that away, or set replaceQdisc; podweir repair then puts podweir's queue back. The agent does so by itself.",
			run: checkPolicing,
		},
		{
			Code: "PW606", Title: "fq enforces departure times", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "attachments with the queue fq: the root qdisc of their device and its limits",
			Why:   "a departure time without an fq that obeys it shapes nothing, and fq's own limits of 100 packets drop packets meanwhile",
			Mend:  "podweir repair puts its fq back, as the agent does. PW505 shows which program replaced it; or set queue to auto.",
			run:   checkFQ,
		},
		{
			Code: "PW607", Title: "no packet passed unlimited because of a podweir fault", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "the counters failed-open-config and failed-open-stamp",
			Why:   "such packets were not charged",
			Mend:  "Report it, with the output of podweir status -o json.",
			run:   checkFailedOpen,
		},
		{
			Code: "PW609", Title: "every egress limit has a ceiling outside the pod", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "limits of egress without a ceiling, the second meter at the host side",
			Why:   "a process with CAP_NET_RAW, which containers have by default, can send past the queue in its own namespace",
			Mend:  "Linux 6.6 or newer has TCX, which the ceiling needs beside another program on its hook. An interface without an end on the host (macvlan, ipvlan) has no place for a ceiling. Without one, drop CAP_NET_RAW from pods that are not trusted.",
			run:   checkCeilings,
		},
		{
			Code: "PW611", Title: "no process sends past its queue", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "the counter dropped-ceiling",
			Why:   "a process in the pod goes around the queue with a packet socket, or took the queue away; the ceiling dropped it",
			Mend:  "Look at what runs in the pod. podweir status shows whether its queue is there, and how many packets were dropped.",
			run:   checkPastQueue,
		},
		{
			Code: "PW608", Title: "nothing is left of deleted pods", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "pins of pods whose interface is gone or not where it was, and queues and programs of podweir's without a record",
			Why:   "pins hold memory; some runtimes do not call DEL for a drop-in. A queue without a record keeps an old limit: podweir's pins were removed, or another bpffs is mounted over them",
			Mend:  "podweir gc removes both. It leaves an interface that is not where it was while one end exists, with a reason: podweir detach removes that if the pod has ended. The agent removes pins within a minute. It takes over a queue without a record if the pod has a limit, and removes it within 12 minutes if no pod requests it. An ADD of the pod takes it over, too, and a GC of the runtime removes pins.",
			run:   checkLeftOver,
		},
	}
}

// minFQLimit is the fewest packets that fq must hold, for one flow too: its own
// limit of 100 drops what a pod sends at its cap (design: sizes).
const minFQLimit = 10_000

func checkFQ(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad, pods []string
		n := 0
		for _, a := range list {
			if a.Queue.Is != terms.QueueFQ || a.Gone || a.Failure != "" {
				continue
			}
			n++
			known := len(bad)
			switch r := a.Root; {
			case r == nil:
				bad = append(bad, a.name()+": no fq on its device")
			case r.Kind != "fq":
				bad = append(bad, a.name()+": "+r.Kind+" in the place of fq")
			case r.PacketLimit < minFQLimit || r.FlowLimit < minFQLimit:
				bad = append(bad, fmt.Sprintf("%s: fq holds %d packets, %d of one flow", a.name(), r.PacketLimit, r.FlowLimit))
			}
			if len(bad) > known {
				pods = append(pods, a.Pod)
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad), fmt.Sprintf("fq with limits of %d or more", minFQLimit), "podweir repair; or set queue to auto, and recreate the pods", bad...).of(pods)
		}
		return holds(fmt.Sprintf("%d limits by departure times", n))
	})
}

func checkFailedOpen(f *Facts) Finding {
	return f.counted("podweir status -o json, and report it", func(a *Attachment) uint64 { return a.FailedOpen })
}

func checkPastQueue(f *Facts) Finding {
	return f.counted("podweir status", func(a *Attachment) uint64 { return a.PastQueue })
}

// counted is broken by every packet of a kind, and then names a remedy.
func (f *Facts) counted(remedy string, packets func(a *Attachment) uint64) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad, pods, unread []string
		for i := range list {
			a := &list[i]
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

func checkCeilings(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad, pods []string
		for _, a := range list {
			if a.NoCeiling != "" && a.Failure == "" && !a.Gone {
				bad, pods = append(bad, a.Pod+": "+a.NoCeiling), append(pods, a.Pod)
			}
		}
		if len(bad) > 0 {
			return breaks("without a ceiling: "+shorten(bad), "a ceiling", "podweir status says why there is none", bad...).of(pods)
		}
		return holds("every egress limit that needs a ceiling has one")
	})
}

func checkLeftOver(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad, fixes []string
		for _, a := range list {
			fix := "podweir gc"
			switch {
			case a.Lost != "":
				bad = append(bad, a.Pod+": no record of "+a.Lost)
			case a.Left != "":
				bad = append(bad, a.Pod+" may be gone: "+a.Left)
				fix = "if " + a.Pod + " has ended: podweir detach --container " + a.ContainerID
			case a.Gone:
				bad = append(bad, a.Pod+" ("+a.Device+") is gone")
			default:
				continue
			}
			if !slices.Contains(fixes, fix) {
				fixes = append(fixes, fix)
			}
		}
		if len(bad) > 0 {
			return breaks("left over: "+shorten(bad), "nothing", strings.Join(fixes, "; "), bad...)
		}
		return holds("none")
	})
}

func checkFailures(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad, reasons []string
		for _, a := range list {
			if a.Failure == "" {
				continue
			}
			name := a.Pod
			if pod := f.podOf(a.ContainerID); pod != "" {
				name = pod
			}
			bad, reasons = append(bad, name+": "+a.Failure), append(reasons, a.Failure)
		}
		if len(bad) > 0 {
			return breaks("unshaped: "+shorten(bad), "no pod with a limit unshaped", f.adviceFor(reasons), bad...)
		}
		if n := observed(list); n > 0 {
			return holds(fmt.Sprintf("%d limits, and %d that are observed only, as is wanted (enforce: observe)", len(list)-n, n))
		}
		return holds(fmt.Sprintf("%d limits", len(list)))
	})
}

// observed is how many limits are measured and not enforced.
func observed(list []Attachment) int {
	n := 0
	for i := range list {
		if list[i].Observed() {
			n++
		}
	}
	return n
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

func checkAttached(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		differ := slices.DeleteFunc(slices.Clone(list), func(a Attachment) bool { return len(a.Drift) == 0 || a.Gone })
		var first, all, pods []string
		for _, a := range differ {
			first = append(first, a.Pod+": "+differences(a.Drift, len(differ)))
			all, pods = append(all, a.Pod+": "+strings.Join(a.Drift, ", ")), append(pods, a.Pod)
		}
		if len(all) > 0 {
			return breaks(shorten(first), "no difference", "podweir repair", all...).of(pods)
		}
		seen := []string{fmt.Sprintf("%d limits", len(list))}
		for i := range list {
			if a := &list[i]; len(a.Kept) > 0 {
				seen = append(seen, fmt.Sprintf("%s keeps %s, which podweir did not set", a.Pod, strings.Join(a.Kept, " ")))
			}
		}
		return holds(strings.Join(seen, "; "))
	})
}

func checkPolicing(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad, pods []string
		requested := 0
		for _, a := range list {
			switch {
			case a.Failure != "" || a.Queue.Is != terms.QueueNone || a.Observed():
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
	})
}
