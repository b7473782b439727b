// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"fmt"
	"strings"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// maxPlanned is up to how many directions with an effect are listed unless all are.
const maxPlanned = 10

// Text is the plan for people: nodes that are unknown, what limits would do now and would
// have done, which pods would be limited, and which request what they do not get. All
// lists every pod.
func (p *Plan) Text(all bool) string {
	var b strings.Builder
	if unknown := p.nodes.group(noPods); unknown.count+p.nodes.Missing > 0 {
		b.WriteString(p.nodes.unknownText(unknown))
	}
	b.WriteString(view.Paragraph("", p.head(), 0))
	for _, section := range []struct {
		word   string
		effect Effect
	}{{"WOULD DROP", DropsNow}, {"WOULD WAIT", WaitsNow}, {"BEFORE", DidExceed}} {
		b.WriteString(p.section(section.word, section.effect, all))
	}
	for i := range p.Groups {
		b.WriteString(view.Paragraph(view.Pad("TOGETHER", 12), p.Groups[i].text(all), 0))
	}
	b.WriteString(p.table(all))
	b.WriteString(p.notTaken().text("NOTE", "pod"))
	left, nobody := p.unlimited()
	b.WriteString(left.text("LEFT", "pod"))
	b.WriteString(nobody.text("NO LIMIT", "pod"))
	if p.None > 0 {
		b.WriteString(view.Paragraph("", count(p.None, "pod")+" without a requested limit would have none.", 0))
	}
	if p.Untold > 0 {
		b.WriteString(view.Paragraph("", fmt.Sprintf("The agents of %s are of a release that does not report pods without a limit.", count(p.Untold, "node")), 0))
	}
	return b.String()
}

// head is the plan in a sentence or two.
func (p *Plan) head() string {
	limited := ""
	if p.Limited > 0 {
		limited = fmt.Sprintf(" Nothing changes for %s with limits that are enforced already.", count(p.Limited, "pod"))
	}
	if len(p.Pods) == 0 {
		return "No limit is observed only: to enforce limits would change nothing." + limited
	}
	byEffect := map[Effect]int{}
	for i := range p.Pods {
		byEffect[effects[p.Pods[i].effect()]]++
	}
	return fmt.Sprintf("Enforcement would limit %s, observed now: %d would lose packets at this moment, %d would only wait, "+
		"%d went beyond a limit before, %d stayed below.", count(len(p.Pods), "pod"),
		byEffect[DropsNow], byEffect[WaitsNow], byEffect[DidExceed], byEffect[NoEffect]) + limited
}

// section lists the directions with an effect.
func (p *Plan) section(word string, effect Effect, all bool) string {
	var b strings.Builder
	listed, more := 0, 0
	for i := range p.Pods {
		for j := range p.Pods[i].Directions {
			d := &p.Pods[i].Directions[j]
			switch {
			case d.Effect != effect:
			case listed == maxPlanned && !all:
				more++
			default:
				listed++
				b.WriteString(view.Paragraph(view.Pad(word, 12), fmt.Sprintf("%s on %s: %s", p.Pods[i].Pod, p.Pods[i].Node, d.text()), 0))
			}
		}
	}
	if more > 0 {
		b.WriteString(view.Paragraph(view.Pad(word, 12), fmt.Sprintf("and %d more, see -o wide", more), 0))
	}
	return b.String()
}

// text is what the limit would do to a direction.
func (d *PlannedDirection) text() string {
	limit := view.Rate(float64(d.Rate))
	carries := fmt.Sprintf("%s carries %s, %.0f %% of its limit of %s", d.Direction, view.Rate(d.SentBitsPerSecond), 100*d.Share(), limit)
	since := fmt.Sprintf("since it was attached, %s of its bytes would have been dropped and %s would have waited",
		percent(d.WouldDropShare), percent(d.WouldWaitShare))
	if d.Effect == DidExceed {
		return carries + "; " + since
	}
	return fmt.Sprintf("%s; %s would be dropped and %s would wait; %s", carries, view.Rate(d.WouldDropBitsPerSecond), view.Rate(d.WouldWaitBitsPerSecond), since)
}

// percent is a share that is not 0 % if it is not 0.
func percent(share float64) string {
	switch {
	case share == 0:
		return "none"
	case share < 0.001:
		return "less than 0.1 %"
	default:
		return fmt.Sprintf("%.1f %%", 100*share)
	}
}

// table lists the pods that would be limited, or says where they are listed.
func (p *Plan) table(all bool) string {
	if len(p.Pods) == 0 {
		return ""
	}
	if len(p.Pods) > view.MaxListed && !all {
		return view.Paragraph("", fmt.Sprintf("List the %d pods and their limits with -o wide.", len(p.Pods)), 0)
	}
	pods := make([]view.Pod, len(p.Pods))
	for i := range p.Pods {
		pods[i] = view.Pod{Pod: p.Pods[i].Pod, Node: p.Pods[i].Node}
		for j := range p.Pods[i].Directions {
			limit := view.Limit{Limit: p.Pods[i].Directions[j].Limit}
			limit.Enforce = terms.Name(terms.EnforceLimit) // as it would be
			pods[i].Limits = append(pods[i].Limits, limit)
		}
	}
	return "\n" + view.Table(pods) + "\n"
}

// notTaken are the pods by what of their annotations is not accepted, bounded or left to
// others.
func (p *Plan) notTaken() *groups {
	g := &groups{}
	for i := range p.Pods {
		for _, note := range p.Pods[i].Notes {
			g.add(note, p.Pods[i].Pod+" on "+p.Pods[i].Node)
		}
	}
	return g
}

// unlimited are the pods without a limit, by the cause: those whose limits are left to
// another shaper, and those whose nobody enforces.
func (p *Plan) unlimited() (left, nobody *groups) {
	left, nobody = &groups{}, &groups{}
	for i := range p.Unlimited {
		u := &p.Unlimited[i]
		g := nobody
		if u.LeftToOthers {
			g = left
		}
		g.add(u.Cause, u.Pod+" on "+u.Node)
	}
	return left, nobody
}
