// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import "slices"

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
	// Cilium's manager has no fq.
	{"PW409", "PW404"},
	// Something is missing or replaced: repair puts it back or takes what is left.
	{"PW602", "PW505"},
	{"PW602", "PW603"},
	{"PW602", "PW609"},
	{"PW602", "PW611"},
	// The probe says who takes packets past the queue.
	{"PW701", "PW506"},
	{"PW701", "PW611"},
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
	{"PW213", "PW202"},
	// The agent gave up: the chain in force is the other program's.
	{"PW221", "PW202"},
	{"PW221", "PW203"},
	// The runtime has not loaded the chain.
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
			Touches: other.Touches, Page: other.Page,
		}
	}
}

// podAt is the pod that podweir limits at a host-side device; of a device that it does
// not know, the device.
func (f *Facts) podAt(device string) string {
	for i := range f.Attached {
		if a := &f.Attached[i]; a.Device == device && a.Failure == "" && !a.Gone {
			return a.Pod
		}
	}
	return device
}
