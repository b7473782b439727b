// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package row is the data of the CNI matrix: its rows, what a run of them gave,
// and the page of both. It runs nothing.
package row

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/podweir/podweir/e2e/step"
)

// Matrix is what matrix.yaml holds.
type Matrix struct {
	Rows []*Row `yaml:"rows"`
}

// Row is a primary CNI in one version and variant, with a delivery and a policy
// engine.
type Row struct {
	// Name says which row it is, on the command line and in the page.
	Name string `yaml:"name"`
	// CNI is the implementation in e2e/matrix/cnis; it is empty where Needs is
	// not.
	CNI string `yaml:"cni"`
	// Version is the primary CNI's, Variant how it is configured, Policy
	// the engine that enforces network policy.
	Version string `yaml:"version"`
	Variant string `yaml:"variant"`
	Policy  string `yaml:"policy"`
	// Tier is fast or full.
	Tier string `yaml:"tier"`
	// Kubernetes is an older release for the row's cluster, such as 1.34, and Helm3
	// says that Helm 3 installs podweir in it.
	Kubernetes string `yaml:"kubernetes"`
	Helm3      bool   `yaml:"helm3"`
	// Real and StandsIn say what runs as users have it, and what replaces the
	// rest.
	Real     string `yaml:"real"`
	StandsIn string `yaml:"standsIn"`
	// Kernel lists features without which the row cannot run.
	Kernel []string `yaml:"kernel"`
	// Profile is the name in compat/profiles, Recipe the page for users.
	Profile string `yaml:"profile"`
	Recipe  string `yaml:"recipe"`
	// Scenario is full, stock, two-interfaces or two-shapers.
	Scenario string `yaml:"scenario"`
	// Order is cni-first (the default) or podweir-first.
	Order string `yaml:"order"`
	// Delivery is how podweir is expected to get into the pods' set-up.
	Delivery string `yaml:"delivery"`
	// Values is the chart's file of values, Set what is changed in it.
	Values string   `yaml:"values"`
	Set    []string `yaml:"set"`
	// Doctor lists the findings that the row has, by their codes, with the reason.
	Doctor map[string]string `yaml:"doctor"`
	// Pods is how many are churned; a run of the fast rows alone churns fewer.
	Pods int `yaml:"pods"`
	// Skip are steps that this row leaves out, with the reason.
	Skip map[string]string `yaml:"skip"`
	// Needs is registry or cloud where the row cannot run here, Elsewhere a proof that
	// replaces it meanwhile.
	Needs     string `yaml:"needs"`
	Elsewhere string `yaml:"elsewhere"`
}

// The scenarios.
const (
	Full          = "full"
	Stock         = "stock"
	TwoInterfaces = "two-interfaces"
	TwoShapers    = "two-shapers"
)

// Fast is the tier of rows that make test runs.
const Fast = "fast"

// PodweirFirst is the order in which podweir is there before the primary CNI.
const PodweirFirst = "podweir-first"

// Parse reads matrix.yaml and checks it.
func Parse(text []byte) (*Matrix, error) {
	m := &Matrix{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(m); err != nil {
		return nil, err
	}
	var errs []error
	names := map[string]bool{}
	for _, r := range m.Rows {
		if names[r.Name] {
			errs = append(errs, fmt.Errorf("row %s: there are two", r.Name))
		}
		names[r.Name] = true
		r.defaults()
		if err := r.check(); err != nil {
			errs = append(errs, fmt.Errorf("row %q: %w", r.Name, err))
		}
	}
	return m, errors.Join(errs...)
}

func (r *Row) defaults() {
	if r.Needs != "" {
		return
	}
	for field, value := range map[*string]string{
		&r.Scenario: Full, &r.Order: "cni-first", &r.Tier: "full", &r.Delivery: "chain", &r.Values: "generic", &r.Policy: "none",
	} {
		if *field == "" {
			*field = value
		}
	}
	if r.Pods == 0 {
		r.Pods = 50
	}
}

func (r *Row) check() error {
	var errs []error
	oneOf := func(field, value string, accepted ...string) {
		if !slices.Contains(accepted, value) {
			errs = append(errs, fmt.Errorf("%s %q is not accepted, want one of %q", field, value, accepted))
		}
	}
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`).MatchString(r.Name) {
		errs = append(errs, errors.New("name: want small letters, digits, dots and hyphens"))
	}
	if r.Version == "" || r.Variant == "" {
		errs = append(errs, errors.New("version and variant are missing"))
	}
	for what, reasons := range map[string]map[string]string{"doctor": r.Doctor, "skip": r.Skip} {
		for key, reason := range reasons {
			if reason == "" {
				errs = append(errs, fmt.Errorf("%s %s has no reason", what, key))
			}
		}
	}
	if r.Needs != "" {
		oneOf("needs", r.Needs, "registry", "cloud")
		if r.CNI != "" {
			errs = append(errs, errors.New("a row that needs something has no cni"))
		}
		return errors.Join(errs...)
	}
	oneOf("tier", r.Tier, Fast, "full")
	oneOf("scenario", r.Scenario, Full, Stock, TwoInterfaces, TwoShapers)
	oneOf("order", r.Order, "cni-first", PodweirFirst)
	oneOf("delivery", r.Delivery, "chain", "drop-in", "handed", "nri")
	if r.CNI == "" || r.Real == "" {
		errs = append(errs, errors.New("cni and real are missing"))
	}
	return errors.Join(errs...)
}

// fastPods is [Row.Pods] in a run of the fast rows alone.
const fastPods = 12

// Select are the rows whose names match any of the patterns, and all that can
// run here if there is none. With fast, they are those of the fast tier.
func (m *Matrix) Select(fast bool, patterns ...string) (_ []*Row, err error) {
	defer step.End(&err)
	var all []*regexp.Regexp
	for _, p := range patterns {
		all = append(all, step.Get(regexp.Compile("^(?:"+p+")$")))
	}
	var out []*Row
	for _, r := range m.Rows {
		match := len(all) == 0 || slices.ContainsFunc(all, func(re *regexp.Regexp) bool { return re.MatchString(r.Name) })
		if match && r.Needs == "" && (!fast || r.Tier == Fast) {
			chosen := *r
			if fast {
				chosen.Pods = min(chosen.Pods, fastPods)
			}
			out = append(out, &chosen)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no row that can run here matches %q", patterns)
	}
	return out, nil
}
