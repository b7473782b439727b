// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	pages "github.com/podweir/podweir/docs/reference/doctor"
	"github.com/podweir/podweir/plugin/terms"
)

// runs are the checks. What each is called, matters for and needs is on its page.
var runs = map[string]func(*Facts) Outcome{
	"PW101": checkKernel,
	"PW102": checkBPFFS,
	"PW106": checkQueues,
	"PW107": checkVisible,
	"PW108": checkRuntime,
	"PW109": checkProfile,
	"PW114": checkMaxConfNum,
	"PW115": checkNRI,
	"PW116": checkQueueReadable,
	"PW117": checkSandboxed,
	"PW201": checkNetwork,
	"PW202": checkChained,
	"PW203": checkDrift,
	"PW204": checkStale,
	"PW205": checkBinary,
	"PW206": checkBandwidth,
	"PW207": checkCapabilities,
	"PW208": checkFirst,
	"PW210": checkDelivery,
	"PW211": checkDropInRead,
	"PW214": checkRenamed,
	"PW218": checkEntry,
	"PW220": checkOneAgent,
	"PW221": checkFought,
	"PW301": checkNPABandwidth,
	"PW307": checkEgressCNI,
	"PW401": checkCiliumAPI,
	"PW402": ofLimits(checkBypassed),
	"PW403": checkOneShaper,
	"PW404": checkBandwidthIdle,
	"PW409": checkSomeShaper,
	"PW501": ofLimits(checkOrder),
	"PW502": ofDevices(checkStrangers),
	"PW504": checkVerdicts,
	"PW505": ofDevices(checkRootQdiscs),
	"PW506": ofLimits(checkAhead),
	"PW601": faults("unshaped: ", "no pod with a limit unshaped", allShaped, terms.FaultUnshaped, terms.FaultUncovered),
	"PW602": faults("", "no difference", noneDiffers, terms.FaultDiffers, terms.FaultUnread),
	"PW603": ofLimits(checkPolicing),
	"PW604": ofDevices(checkOneInterface),
	"PW605": checkUnattached,
	"PW607": counted("podweir status -o json, and report it", func(a *Attachment) uint64 { return a.FailedOpen }),
	"PW608": faults("left over: ", "nothing", none, terms.FaultLost, terms.FaultLeft),
	"PW609": ofLimits(checkCeilings),
	"PW610": faults("", "a limit on every pod that asks for one", noneOverdue, terms.FaultOverdue),
	"PW611": counted("podweir status", func(a *Attachment) uint64 { return a.PastQueue }),
	"PW612": faults("", "limits that hold, and stay in place", noneExceeded, terms.FaultExceeded, terms.FaultTaken, terms.FaultHeld),
	"PW613": checkAgent,
	"PW614": ofLimits(checkGroups),
}

// sights are about what the doctor can see, and not about what is wrong on the node: their
// findings come last.
var sights = map[string]bool{"PW107": true, "PW108": true}

// onPage finds on a page what the doctor needs of it; docs/contributing/doctor-checks.md
// has the form.
var onPage = regexp.MustCompile(`(?s)^# PW\d{3}: ([^\n]+)\n\n\*\*(fail|warn)\*\*, (\w+)\.( Needs [^\n]+?\.md\)\.)?(?: Only where a CNI of the family ` + "`(\\w+)`" + ` is in force or runs\.)?\n\n` +
	`It looks at [^\n]+\. Why: ([^\n]+)\.\n\n\*\*Cure\*\*: [^\n]+\.\n(?:\nSources: [^\n]+\n)?$`)

var needed = regexp.MustCompile(`\[(PW\d{3})\]`)

// Checks returns the registry, by code. The caller may keep and change the
// list.
func Checks() []Check {
	var out []Check
	for _, code := range slices.Sorted(maps.Keys(runs)) {
		text, _ := pages.Files.ReadFile(code + ".md")
		c := Check{Code: code, Page: string(text), run: runs[code]}
		if m := onPage.FindSubmatch(text); m != nil { // a test holds each page to it
			c.Title, c.Severity, c.Category, c.Family = string(m[1]), Status(m[2]), Category(m[3]), string(m[5])
			c.Why = string(m[6])
			for _, n := range needed.FindAllSubmatch(m[4], -1) {
				c.Needs = append(c.Needs, string(n[1]))
			}
		}
		out = append(out, c)
	}
	return out
}

// Explain returns the page of a code, with podweir's commands as they are run where it is
// read; "" if there is no such check.
func Explain(code, run string) string {
	for _, c := range Checks() {
		if strings.EqualFold(c.Code, code) {
			return terms.Runnable(c.Page, run)
		}
	}
	return ""
}

// Page is the file of a check's page.
func Page(code string) string { return pages.Dir + "/" + code + ".md" }

// together are pairs of checks that one problem breaks at once, in the order in which
// they are joined: the first names the cause, or has the remedy; the second is its
// consequence, or the same seen from elsewhere.
var together = [][2]string{
	// The limit is taken away again and again.
	{"PW612", "PW611"},
	{"PW612", "PW602"},
	// A program is ahead of podweir on a hook: repair moves podweir back.
	{"PW501", "PW602"},
	// Calico's limit is before podweir's.
	{"PW403", "PW505"},
	{"PW403", "PW602"},
	// Cilium's manager has no fq.
	{"PW409", "PW404"},
	// Something is missing or replaced: repair puts it back or takes what is left.
	{"PW602", "PW505"},
	{"PW602", "PW603"},
	{"PW602", "PW609"},
	{"PW602", "PW611"},
	// A foreign file is in force: without it the rest is right.
	{"PW201", "PW208"},
	{"PW208", "PW202"},
	{"PW208", "PW203"},
	{"PW208", "PW206"},
	{"PW208", "PW210"},
	// The delivery does not work here: PW210 has the commands for another one.
	{"PW210", "PW211"},
	{"PW210", "PW202"},
	{"PW210", "PW214"},
	{"PW214", "PW202"},
	// The agent gave up: the chain in force is the other program's.
	{"PW221", "PW202"},
	{"PW221", "PW203"},
	// The runtime does not read the drop-in; without it the rest is right.
	{"PW211", "PW202"},
	{"PW202", "PW605"},
	// The runtime does not pass on what pods ask for.
	{"PW207", "PW605"},
	// podweir takes the place of bandwidth, or cannot.
	{"PW202", "PW206"},
	{"PW206", "PW210"},
}

// Also is a check that the same problem breaks.
type Also struct {
	Code string `json:"code"`
	Seen string `json:"seen"`
}

func severity(s Status) int { return slices.Index([]Status{Warn, Fail}, s) }

// join makes one finding of what one problem breaks: the second check of a pair is
// skipped if it is about pods and files of the first alone, and no worse.
func join(outcomes []Outcome) {
	find := func(code string) *Outcome {
		at := slices.IndexFunc(outcomes, func(o Outcome) bool { return o.Code == code && severity(o.Status) >= 0 })
		if at < 0 || len(outcomes[at].about) == 0 {
			return nil
		}
		return &outcomes[at]
	}
	for _, pair := range together {
		cause, other := find(pair[0]), find(pair[1])
		if cause == nil || other == nil || severity(other.Status) > severity(cause.Status) ||
			slices.ContainsFunc(other.about, func(it string) bool { return !slices.Contains(cause.about, it) }) {
			continue
		}
		cause.Also = append(append(cause.Also, Also{other.Code, other.Seen}), other.Also...)
		*other = Outcome{
			Code: other.Code, Title: other.Title, Category: other.Category, Status: Skip, Seen: "part of " + cause.Code,
			Page: other.Page,
		}
	}
}

// podAt is the pod that podweir limits at a host-side device; of a device that it does
// not know, the device.
func (f *Facts) podAt(device string) string {
	for i := range f.Attached {
		if a := &f.Attached[i]; a.Device == device {
			return a.Pod
		}
	}
	return device
}
