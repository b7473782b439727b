// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package rules holds what AWS asks of a Helm chart that is to be an Amazon
// EKS add-on, one code per rule, and checks a chart directory against all of
// them. It needs no cluster, no network and no privileges.
//
// The rules are those of the AWS Marketplace user guide, "Container-based
// product requirements for AWS Marketplace", section on Amazon EKS add-ons
// (https://docs.aws.amazon.com/marketplace/latest/userguide/container-product-policies.html),
// and of the Marketplace API reference, "Work with container-based products".
package rules

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is one violation of one rule.
type Finding struct {
	// Code of the rule that is broken.
	Code string
	// File below the chart directory, Line in it from 1, or 0 where the whole
	// file is meant.
	File string
	Line int
	// Message says what is there and what is requested.
	Message string
	// Review marks what AWS decides by hand: it has to be explained, and does
	// not fail the check.
	Review bool
}

// String is one line: place, code, message.
func (f Finding) String() string {
	place := f.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	kind := "error"
	if f.Review {
		kind = "review"
	}
	return fmt.Sprintf("%s: %s: %s: %s", place, kind, f.Code, f.Message)
}

// Rule is one thing that AWS asks for.
type Rule struct {
	// Code is stable; a retired one is not used again.
	Code string
	// Title says in one line what is requested.
	Title string
	// check appends nothing when the chart keeps the rule.
	check func(*Chart) []Finding
}

// Options of a check.
type Options struct {
	// Values are files whose contents are merged over the chart's values, in
	// this order, as "helm template -f" does.
	Values []string
	// Namespace in which the add-on is to live; one, and for ever.
	Namespace string
	// KubeVersions are the Kubernetes versions the add-on is declared for.
	KubeVersions []string
	// Submission adds what holds only for the copy that is handed to AWS: the
	// images are in the Marketplace's own registry.
	Submission bool
}

// All lists every rule in the order of its code.
func All() []Rule {
	all := slices.Concat(templateRules(), chartRules(), imageRules(), objectRules(), schemaRules())
	slices.SortFunc(all, func(a, b Rule) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// Check returns everything that is wrong with the chart in dir, in the order
// of code, file and line. An error means that it could not be looked at.
func Check(dir string, o Options) ([]Finding, error) {
	c, err := load(dir, o)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, rule := range All() {
		for _, f := range rule.check(c) {
			f.Code = rule.Code
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return slices.Compact(out), nil
}

// NotChecked lists what AWS asks for and no look at a chart can tell.
var NotChecked = []string{
	"the product is one of the listed types, and its software is no CNI plugin: AWS decides (EKS101 shows only what the chart mounts)",
	"every image, and the chart, is pushed to the registry that AWS Marketplace made for the product, without attestation layers",
	"the add-on's name, type and namespace are those of its first version; one add-on option per version",
	"the product is public before the add-on is; free, or metered by the Marketplace; no licence keys",
	"each new Kubernetes version of EKS is certified within 45 days",
}
