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
			Mend:  "Read the reason, mend it and start the pod anew. docs/reference/errors.md has the reasons.",
			run:   checkFailures,
		},
		{
			Code: "PW602", Title: "attachments are as they should be", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "the difference between what podweir recorded and what is on the devices, as podweir status shows it",
			Why:   "somebody changed or removed a queue or a program of podweir's",
			Mend:  "podweir status says what differs. Start the pod anew; if it comes again, PW501, PW502 and PW505 name who else is there.",
			run:   checkAttached,
		},
		{
			Code: "PW603", Title: "a limit has a queue", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "attachments that police because no queue could be had",
			Why:   "policing drops instead of delaying: TCP gets far less than its limit",
			Mend:  "See PW106, and podweir status for why the queue was not taken.",
			run:   checkPolicing,
		},
	}
}

func checkFailures(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad []string
		for _, a := range list {
			if a.Failure != "" {
				bad = append(bad, a.Pod+": "+a.Failure)
			}
		}
		if len(bad) > 0 {
			return breaks("unshaped: "+shorten(bad), "no pod with a limit unshaped", "podweir status; then start the pod anew", bad...)
		}
		return holds(fmt.Sprintf("%d limits", len(list)))
	})
}

func checkAttached(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad []string
		for _, a := range list {
			if len(a.Drift) > 0 {
				bad = append(bad, a.Pod+": "+strings.Join(a.Drift, ", "))
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad), "no difference", "podweir status; then start the pod anew", bad...)
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
