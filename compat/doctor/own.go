// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"strings"
)

func ownChecks() []Check {
	return []Check{
		{
			Code: "PW601", Title: "every limit is enforced", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "failures that podweir recorded for pods with a limit",
			Why:   "with onError open a pod starts unshaped when podweir cannot shape it",
			Mend:  "Read the reason and mend it; docs/reference/errors.md has the reasons. The agent then sets the limit by itself. Without an agent, recreate the pod.",
			run:   checkFailures,
		},
		{
			Code: "PW602", Title: "attachments are as they should be", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "the difference between what podweir recorded and what is on the devices, as podweir status shows it",
			Why:   "somebody changed or removed a queue or a program of podweir's, or another release attached the pod and the agent has not been there since",
			Mend:  "podweir repair --dry-run says what differs, podweir repair puts it right. If it comes again, PW501, PW502 and PW505 name who else is there.",
			run:   checkAttached,
		},
		{
			Code: "PW603", Title: "a limit has a queue", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "attachments that police because no queue could be had",
			Why:   "policing drops instead of delaying: TCP gets far less than its limit",
			Mend:  "See PW106, and podweir status for why the queue was not taken.",
			run:   checkPolicing,
		},
		{
			Code: "PW606", Title: "departure times are obeyed", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "attachments with the queue fq: the root qdisc of their device and its limits",
			Why:   "a departure time without an fq that obeys it shapes nothing, and fq's own limits of 100 packets drop while the clock runs on",
			Mend:  "podweir repair puts its fq back, as the agent does. Who replaced it shows PW505; or set queue to auto.",
			run:   checkFQ,
		},
		{
			Code: "PW607", Title: "no packet passed for a fault of podweir's", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "the counters failed-open-config and failed-open-stamp",
			Why:   "such packets were not charged",
			Mend:  "Report it, with the output of podweir status -o json.",
			run:   checkFailedOpen,
		},
		{
			Code: "PW609", Title: "no pod can send past its limit", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "limits of egress without a ceiling, the second meter at the host side",
			Why:   "a process with CAP_NET_RAW, which containers have by default, can send past the queue in its own namespace",
			Mend:  "Linux 6.6 or newer has TCX, which the ceiling needs. Until then drop CAP_NET_RAW from pods that are not trusted.",
			run:   checkCeilings,
		},
		{
			Code: "PW611", Title: "no pod sends past its queue", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "the counter dropped-ceiling",
			Why:   "a process in the pod goes around the queue with a packet socket, or took the queue away; the ceiling dropped it",
			Mend:  "Look at what runs in the pod. podweir status shows whether its queue is there, and how many packets were dropped.",
			run:   checkPastQueue,
		},
		{
			Code: "PW608", Title: "nothing is left over", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "pins of pods whose network namespace is gone",
			Why:   "they hold memory; some runtimes do not call DEL for a drop-in",
			Mend:  "podweir gc removes them, and so does the next GC of the runtime or the agent.",
			run:   checkLeftOver,
		},
	}
}

// minFQLimit is the fewest packets that fq must hold, for one flow too: its own
// limit of 100 drops what a pod sends at its cap (design: sizes).
const minFQLimit = 10_000

func checkFQ(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad []string
		n := 0
		for _, a := range list {
			if a.Queue != "fq" || a.Gone || a.Failure != "" {
				continue
			}
			n++
			switch r := a.Root; {
			case r == nil:
				bad = append(bad, a.Pod+" "+a.Direction+": no fq on its device")
			case r.Kind != "fq":
				bad = append(bad, a.Pod+" "+a.Direction+": "+r.Kind+" in the place of fq")
			case r.PacketLimit < minFQLimit || r.FlowLimit < minFQLimit:
				bad = append(bad, fmt.Sprintf("%s %s: fq holds %d packets, %d of one flow", a.Pod, a.Direction, r.PacketLimit, r.FlowLimit))
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad), fmt.Sprintf("fq with limits of %d or more", minFQLimit), "podweir repair; or set queue to auto, and recreate the pods", bad...)
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
		var bad []string
		for i := range list {
			a := &list[i]
			if n := packets(a); n > 0 {
				bad = append(bad, fmt.Sprintf("%s %s: %d packets", a.Pod, a.Direction, n))
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad), "none", remedy, bad...)
		}
		return holds("none")
	})
}

func checkCeilings(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad []string
		for _, a := range list {
			if a.NoCeiling != "" && a.Failure == "" && !a.Gone {
				bad = append(bad, a.Pod+": "+a.NoCeiling)
			}
		}
		if len(bad) > 0 {
			return breaks("without a ceiling: "+shorten(bad), "a ceiling", "podweir status says why there is none", bad...)
		}
		return holds("every limit of egress that is asked to have a ceiling has one")
	})
}

func checkLeftOver(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad []string
		for _, a := range list {
			if a.Gone {
				bad = append(bad, a.Pod+" ("+a.Device+")")
			}
		}
		if len(bad) > 0 {
			return breaks("pins of pods that are gone: "+shorten(bad), "none", "podweir gc", bad...)
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
		return holds(fmt.Sprintf("%d limits", len(list)))
	})
}

func checkAttached(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad []string
		for _, a := range list {
			if len(a.Drift) > 0 && !a.Gone {
				bad = append(bad, a.Pod+": "+strings.Join(a.Drift, ", "))
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad), "no difference", "podweir repair", bad...)
		}
		return holds(fmt.Sprintf("%d limits", len(list)))
	})
}

func checkPolicing(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad []string
		for _, a := range list {
			if a.Failure == "" && a.Queue == "none" {
				bad = append(bad, a.Pod+" "+a.Direction)
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad)+" by policing", "a queue", "podweir status says why there is none", bad...)
		}
		return holds("every limit has a queue")
	})
}
