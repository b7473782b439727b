// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package record keeps what a campaign measured: JSON, a line for the campaign
// and one for each sample, so that an interrupted one resumes and every number
// that is quoted can be traced to its sample.
package record

import (
	"time"

	"github.com/podweir/podweir/tools/perfrig/spec"
)

// SubstrateVM is the substrate of emulated machines, of which one campaign is kept.
const SubstrateVM = "vm"

// Machine is where samples were taken. All of it must be the same for a
// campaign to resume.
type Machine struct {
	// Substrate is "netns", or [SubstrateVM].
	Substrate string `json:"substrate"`
	Kernel    string `json:"kernel"`
	CPU       string `json:"cpu"`
	CPUs      int    `json:"cpus"`
	// Commit is the checkout's as tools/version.sh has it.
	Commit string `json:"commit"`
	// Plugin is a digest of the podweir-cni that was measured.
	Plugin string `json:"plugin"`
}

// Campaign is the first line.
type Campaign struct {
	Profile string `json:"profile"`
	Digest  string `json:"digest"` // of the spec
	// Planned is how many samples the spec takes; older files have 0.
	Planned int       `json:"planned,omitempty"`
	Started time.Time `json:"started"`
	Machine Machine   `json:"machine"`
}

// Sample is one run.
type Sample struct {
	Cell  spec.Cell `json:"cell"`
	Round int       `json:"round"`

	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Foreign is the processor time, in cores, that processes took meanwhile
	// which are none of the rig's.
	Foreign float64 `json:"foreign"`
	// Stolen is what the host of a virtual machine took meanwhile, in cores; 0 also in
	// samples of before this was read.
	Stolen float64 `json:"stolen,omitempty"`

	// Metrics are numbers by their name, which ends with its [Unit].
	Metrics map[string]float64 `json:"metrics,omitempty"`

	// Unavailable says why the substrate cannot do it; it is not tried again.
	Unavailable string `json:"unavailable,omitempty"`
	// Failed says what went wrong; it is tried again when the campaign
	// resumes.
	Failed string `json:"failed,omitempty"`
}

// ID names the run of the sample.
func (s *Sample) ID() string { return (&spec.Run{Cell: s.Cell, Round: s.Round}).ID() }

// Good says whether the sample has numbers.
func (s *Sample) Good() bool { return s.Unavailable == "" && s.Failed == "" }

// Results are a campaign's file.
type Results struct {
	Campaign Campaign
	// Samples are in the order in which they were taken; of a run that was
	// tried again, the last.
	Samples []Sample
}

// Done are the IDs of runs that need not be taken again.
func (r *Results) Done() map[string]bool {
	out := map[string]bool{}
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Failed == "" {
			out[s.ID()] = true
		}
	}
	return out
}

// Values are a metric of the good samples of a cell, by round.
func (r *Results) Values(cellID, metric string) map[int]float64 {
	out := map[int]float64{}
	for i := range r.Samples {
		s := &r.Samples[i]
		if v, ok := s.Metrics[metric]; ok && s.Good() && s.Cell.ID() == cellID {
			out[s.Round] = v
		}
	}
	return out
}
