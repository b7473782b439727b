// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"fmt"
	"slices"
	"strings"
)

// AnnotationDomain is the prefix of podweir's own annotations.
const AnnotationDomain = "podweir.io/"

// The annotations of Kubernetes that ask for a limit.
const (
	IngressAnnotation = "kubernetes.io/ingress-bandwidth"
	EgressAnnotation  = "kubernetes.io/egress-bandwidth"
)

// Keys that the runtime fills in.
const (
	// PodAnnotationsCapability is the capability under which containerd and
	// CRI-O hand over the annotations of the pod.
	PodAnnotationsCapability = "io.kubernetes.cri.pod-annotations"
	bandwidthCapability      = "bandwidth"
)

// specKeys are the keys of the specification and of its conventions, which
// every plugin gets whether it uses them or not.
var specKeys = []string{
	"cniVersion", "name", "type", "capabilities", "runtimeConfig", "args", "ipam", "dns", "prevResult",
}

// confKeys are our keys of the network configuration.
var confKeys = []string{
	"ingressRate", "egressRate", "ingressBurst", "egressBurst",
	"unshapedSubnets", "shapedSubnets",
	"policy",
	"mode", "ingressMode", "egressMode",
	"queue", "ingressQueue", "egressQueue",
	"horizon", "ingressHorizon", "egressHorizon",
	"lightShare", "heavyThreshold", "ingressPlace", "egressCeiling",
	"shaper", "ingressShaper", "egressShaper",
	"podAnnotations",
	"onError", "replaceQdisc", "logFile", "logLevel",
}

// annotationKeys are our annotations, without the domain.
var annotationKeys = []string{
	"policy",
	"ingress-burst", "egress-burst",
	"ingress-queue", "egress-queue",
	"ingress-horizon", "egress-horizon",
	"light-share", "heavy-threshold",
}

// Keys returns the keys of the network configuration that are podweir's own.
func Keys() []string { return slices.Clone(confKeys) }

// Annotations returns the pod annotations that are podweir's own.
func Annotations() []string {
	out := make([]string, len(annotationKeys))
	for i, k := range annotationKeys {
		out[i] = AnnotationDomain + k
	}
	return out
}

// warnUnknownKeys mentions keys that nobody reads. The specification demands
// that they are tolerated, but most of them are typing errors.
func (p *parser) warnUnknownKeys() {
	var unknown []string
	for key := range p.conf {
		same := func(k string) bool { return strings.EqualFold(k, key) }
		if !slices.ContainsFunc(specKeys, same) && !slices.ContainsFunc(confKeys, same) &&
			!strings.HasPrefix(key, "cni.dev/") {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	for _, key := range unknown {
		p.warn("unknown key %s is ignored%s", quoted(key), suggestion(key, confKeys))
	}
}

func (p *parser) warnUnknownAnnotations() {
	var unknown []string
	for name := range p.annotations {
		key, ours := strings.CutPrefix(name, AnnotationDomain)
		if ours && !slices.Contains(annotationKeys, key) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	for _, key := range unknown {
		hint := suggestion(key, annotationKeys)
		switch {
		case strings.HasSuffix(key, "-bandwidth") || strings.HasSuffix(key, "-rate"):
			hint = ", the rate is kubernetes.io/ingress-bandwidth or kubernetes.io/egress-bandwidth"
		case strings.HasSuffix(key, "-mode") || key == "mode" || strings.HasSuffix(key, "-place") || strings.HasSuffix(key, "shaper") || strings.HasSuffix(key, "ceiling"):
			hint = ", it is for the network configuration alone"
		}
		p.warn("unknown annotation %s is ignored%s", quoted(AnnotationDomain+key), hint)
	}
}

func (p *parser) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(p.config.Warnings, text) { // limits are read again where settings contradict each other
		p.config.Warnings = append(p.config.Warnings, text)
	}
}

// suggestion names the known key that is most like an unknown one, if one is.
func suggestion(key string, known []string) string {
	best, least := "", len(key)/3+2
	if len(key) > maxQuoted {
		return ""
	}
	for _, k := range known {
		if d := distance(strings.ToLower(key), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + quoted(best) + "?"
}

// distance is the Levenshtein distance of two short strings, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
