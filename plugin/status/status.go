// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package status tells what is attached on a node, whether it is as it should
// be, and what it did, per pod.
package status

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
)

// Report is the state of a node.
type Report struct {
	// Schema is raised when a field changes its meaning.
	Schema      int           `json:"schema"`
	Attachments []Attachment  `json:"attachments"`
	Failures    []cni.Failure `json:"failures,omitempty"`
}

// Schema is the version of [Report].
const Schema = 1

// Attachment is one shaped interface of a pod.
type Attachment struct {
	ID        attach.ID        `json:"id"`
	Pod       string           `json:"pod,omitempty"`
	Interface attach.Interface `json:"interface"`
	// By is who made the attachment: plugin, nri, agent or hand; "" if that was a
	// release that did not say.
	By attach.By `json:"by,omitempty"`
	// Set says that `podweir set` changed the limits.
	Set        bool        `json:"set,omitempty"`
	Directions []Direction `json:"directions"`
	// Notes are what else to know, such as limits that are left to others.
	Notes []string `json:"notes,omitempty"`
	// Error says why the interface could not be looked at.
	Error string `json:"error,omitempty"`
	// Drift names the differences to what it should be.
	Drift []string `json:"drift,omitempty"`
}

// Direction is one direction of an interface.
type Direction struct {
	Direction         string  `json:"direction"`
	RateBitsPerSecond uint64  `json:"rateBitsPerSecond"`
	BurstBytes        uint64  `json:"burstBytes"`
	DepthBytes        uint64  `json:"depthBytes"`
	MaxWaitSeconds    float64 `json:"maxWaitSeconds"`
	Policy            string  `json:"policy"`
	Queue             string  `json:"queue"`
	Mode              string  `json:"mode"`
	Side              string  `json:"side"`
	Hook              string  `json:"hook"`
	HookKind          string  `json:"hookKind,omitempty"`
	Program           string  `json:"program,omitempty"`
	CapHolds          bool    `json:"capHolds"`
	// NoCeiling says why egress has no ceiling, "" if it has one or none was asked for.
	NoCeiling  string               `json:"noCeiling,omitempty"`
	Notes      []string             `json:"notes,omitempty"`
	Counters   []datapath.Counter   `json:"counters,omitempty"`
	HeavyFlows []datapath.HeavyFlow `json:"heavyFlows,omitempty"`
	Qdisc      *cni.QueueStatistics `json:"qdisc,omitempty"`
}

// Collect looks at every attachment of the node. What cannot be read of one
// attachment is told in its place; the others are complete.
func Collect(node *cni.Node) (*Report, error) {
	ids, err := node.List()
	if err != nil {
		return nil, err
	}
	rep := &Report{Schema: Schema, Attachments: []Attachment{}}
	queues := node.Queues()
	for _, id := range ids {
		records, err := node.Engine.Store.Records(id)
		if err != nil {
			rep.Attachments = append(rep.Attachments, Attachment{ID: id, Error: err.Error()})
		}
		for _, r := range records {
			rep.Attachments = append(rep.Attachments, attachment(node, queues, r))
		}
	}
	sort.Slice(rep.Attachments, func(i, j int) bool {
		a, b := &rep.Attachments[i], &rep.Attachments[j]
		if a.Pod != b.Pod {
			return a.Pod < b.Pod
		}
		return a.ID.String() < b.ID.String()
	})
	if rep.Failures, err = node.Paths.Failures(); err != nil {
		return nil, fmt.Errorf("read failure records: %w", err)
	}
	return rep, nil
}

func attachment(node *cni.Node, queues *cni.Queues, r *attach.Record) Attachment {
	a := Attachment{ID: r.ID, Pod: r.Pod, Interface: r.Interface, By: r.By, Set: r.Asked != nil, Directions: []Direction{}}
	for _, d := range r.Config.Deferred {
		if r.Config.Limit(d.Direction) == nil { // `podweir set` may have given it one
			a.Notes = append(a.Notes, d.String())
		}
	}
	a.Notes = append(a.Notes, r.Config.Notes...)
	want, plan, err := node.Engine.Drift(&r.Config, r.Interface, r)
	if err != nil {
		a.Error = err.Error()
		if errors.Is(err, hostif.ErrNoNetNS) {
			a.Error = "the pod's network namespace is gone; DEL, GC or `podweir detach` removes the rest"
		}
		return a
	}
	for _, step := range plan {
		a.Drift = append(a.Drift, step.String())
	}
	for _, d := range shaping.Directions {
		if s := want.Directions[d]; s != nil {
			one := direction(node, queues, r, s)
			one.Notes = append(slices.Clip(one.Notes), beforeRedirect(node, r, s)...)
			a.Directions = append(a.Directions, one)
		}
	}
	return a
}

// beforeRedirect says who is asked before the redirect to the ifb, which is
// asked last on purpose. Whether a program lets packets on cannot be read from
// it.
func beforeRedirect(node *cni.Node, r *attach.Record, s *attach.DirectionState) []string {
	if !s.Params.Redirect {
		return nil
	}
	obs, err := node.Engine.Kernel.Observe(r)
	if err != nil {
		return []string{"hooks: " + err.Error()}
	}
	pod := obs.Device(shaping.SidePod)
	var notes []string
	for _, h := range pod.Hooks {
		if h.Hook == shaping.HookIngress && !attach.Ours(h.Name) {
			notes = append(notes, fmt.Sprintf("%v program %q (%d) is asked before the redirect on %s: if it ends the chain, ingress is not limited; podweir doctor --probe tells",
				h.Kind, h.Name, h.ProgramID, pod.Name))
		}
	}
	return notes
}

func direction(node *cni.Node, queues *cni.Queues, r *attach.Record, s *attach.DirectionState) Direction {
	p := s.Params
	d := Direction{
		Direction: p.Direction.String(), RateBitsPerSecond: uint64(p.Rate),
		BurstBytes: uint64(p.BurstBytes), DepthBytes: uint64(p.DepthBytes), MaxWaitSeconds: p.MaxWait.Seconds(),
		Policy: p.Policy.String(), Queue: p.Queue.String(), Mode: p.Mode.String(), Side: p.Side.String(),
		Hook: p.Hook.String(), Program: p.ProgramName(), CapHolds: p.CapHolds, NoCeiling: p.NoCeiling, Notes: p.Notes,
	}
	if p.Hook == shaping.HookEgress || p.Hook == shaping.HookIngress {
		d.HookKind = s.HookKind.String()
	}
	dir := node.PinDir(r)
	var err error
	if p.Counts() {
		if d.Counters, err = datapath.Counters(dir, p.Direction); err != nil {
			d.Notes = append(d.Notes, "counters: "+err.Error())
		}
		if d.HeavyFlows, err = datapath.HeavyFlows(dir, p.Direction); err != nil {
			d.Notes = append(d.Notes, "heavy flows: "+err.Error())
		}
	}
	if p.Tree != nil {
		if d.Qdisc, err = queues.Statistics(r, p.Side); err != nil {
			d.Notes = append(d.Notes, "queue: "+err.Error())
		}
	}
	return d
}

// Faults counts the interfaces that are not as they should be.
func (r *Report) Faults() int {
	n := len(r.Failures)
	for i := range r.Attachments {
		if a := &r.Attachments[i]; a.Error != "" || len(a.Drift) > 0 {
			n++
		}
	}
	return n
}
