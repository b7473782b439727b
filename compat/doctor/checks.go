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
var runs = map[string]func(*Facts) Finding{
	"PW101": checkKernel,
	"PW102": checkBPFFS,
	"PW105": checkTCX,
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
	"PW212": checkDropInsLoad,
	"PW213": checkDropInPlace,
	"PW214": checkRenamed,
	"PW218": checkEntry,
	"PW220": checkOneAgent,
	"PW221": checkFought,
	"PW301": checkNPABandwidth,
	"PW307": checkEgressCNI,
	"PW401": checkCiliumAPI,
	"PW402": checkBypassed,
	"PW403": checkOneShaper,
	"PW404": checkBandwidthIdle,
	"PW405": checkLegacyBesideCilium,
	"PW409": checkSomeShaper,
	"PW501": checkOrder,
	"PW502": checkStrangers,
	"PW504": checkVerdicts,
	"PW505": checkRootQdiscs,
	"PW506": checkAhead,
	"PW507": checkMode,
	"PW601": checkFailures,
	"PW602": checkAttached,
	"PW603": checkPolicing,
	"PW604": checkOneInterface,
	"PW605": checkUnattached,
	"PW607": checkFailedOpen,
	"PW608": checkLeftOver,
	"PW609": checkCeilings,
	"PW610": checkOverdue,
	"PW611": checkPastQueue,
	"PW612": checkUnenforced,
	"PW613": checkAgent,
	"PW614": checkGroups,
	"PW701": probed(checkFlows),
}

// sights are about what the doctor can see, and not about what is wrong on the node: their
// findings come last.
var sights = map[string]bool{"PW107": true, "PW108": true}

// onPage finds on a page what the doctor needs of it; docs/contributing/doctor-checks.md
// has the form.
var onPage = regexp.MustCompile(`(?s)^# PW\d{3}: ([^\n]+)\n\n\*\*(fail|warn)\*\*, (\w+)\.( Needs [^\n]+?\.md\)\.)?(?: Only where a CNI of the family ` + "`(\\w+)`" + ` is in force or runs\.)?\n\n` +
	`It looks at [^\n]+\. Why: ([^\n]+)\.\n\n(?:Only with ` + "`podweir doctor --probe`" + `\. It touches ([^\n]+)\.\n\n)?\*\*Cure\*\*: [^\n]+\.\n(?:\nSources: [^\n]+\n)?$`)

var needed = regexp.MustCompile(`\[(PW\d{3})\]`)

// Checks returns the registry, by code. The caller may keep and change the
// list.
func Checks() []Check {
	var out []Check
	for _, code := range slices.Sorted(maps.Keys(runs)) {
		text, _ := pages.Files.ReadFile(code + ".md")
		c := Check{Code: code, Page: string(text), Sight: sights[code], run: runs[code]}
		if m := onPage.FindSubmatch(text); m != nil { // a test holds each page to it
			c.Title, c.Severity, c.Category, c.Family = string(m[1]), Severity(m[2]), Category(m[3]), string(m[5])
			c.Why, c.Touches = string(m[6]), string(m[7])
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
