// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

// AnnotationDomain is the prefix of podweir's own annotations.
const AnnotationDomain = "podweir.io/"

// The annotations of Kubernetes that ask for a limit, which other software enforces,
// too, and those that podweir alone reads.
const (
	IngressAnnotation = "kubernetes.io/ingress-bandwidth"
	EgressAnnotation  = "kubernetes.io/egress-bandwidth"

	OwnIngressAnnotation = AnnotationDomain + "ingress-rate"
	OwnEgressAnnotation  = AnnotationDomain + "egress-rate"
)

// RateAnnotations are all annotations of pods that ask for a limit.
var RateAnnotations = []string{OwnEgressAnnotation, OwnIngressAnnotation, EgressAnnotation, IngressAnnotation}

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
	"defaultRate", "ingressRate", "egressRate", "maxRate", "ingressMaxRate", "egressMaxRate", "namespaceRate", "namespaceMaxRate",
	"ingressBurst", "egressBurst",
	"unshapedSubnets", "shapedSubnets",
	"policy",
	"mode", "ingressMode", "egressMode",
	"queue", "ingressQueue", "egressQueue",
	"horizon", "ingressHorizon", "egressHorizon",
	"lightShare", "heavyThreshold", "ingressPlace", "egressCeiling", "smallPackets", "hostHook", "podHook", "interfaces",
	"shaper", "ingressShaper", "egressShaper",
	"enforce",
	"podAnnotations",
	"onError", "replaceQdisc", "logLevel",
}

// annotationKeys are our annotations, without the domain.
var annotationKeys = []string{
	"ingress-rate", "egress-rate",
	"policy",
	"ingress-burst", "egress-burst",
	enforceAnnotation,
}

// enforceAnnotation is read on Namespaces, and on pods if the operator lets them.
const enforceAnnotation = "enforce"

// Keys returns the keys of the network configuration that are podweir's own.
func Keys() []string { return slices.Clone(confKeys) }

// Annotations returns the pod annotations that are podweir's own.
func Annotations() []string { return inDomain(annotationKeys) }

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
		text := fmt.Sprintf("unknown key %s is ignored", quoted(key))
		if hint := terms.DidYouMean(key, slices.Concat(confKeys, specKeys)); hint != "" {
			text += hint
			p.config.Misspelt = append(p.config.Misspelt, text)
		}
		p.warn("%s", text)
	}
}

// warnUnknownAnnotations lists the first annotations that nobody reads and counts the
// others, in one warning: their author is not the one who reads the log.
func (p *parser) warnUnknownAnnotations() {
	names := p.annotations.UnknownNames()
	if len(names) == 0 {
		return
	}
	listed := make([]string, len(names))
	for i, name := range names {
		listed[i] = quoted(name) + annotationHint(strings.TrimPrefix(name, AnnotationDomain))
	}
	text := strings.Join(listed, ", ")
	if more := p.annotations.Unknown - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	p.warn("unknown annotations are ignored: %s", text)
}

// annotationHint says what may be meant by an annotation that nobody reads.
func annotationHint(key string) string {
	switch {
	case slices.Contains(namespaceKeys, key):
		return " (it is for Namespaces)"
	case endsIn(key, "-bandwidth", "-rate"):
		return " (the rate is " + OwnIngressAnnotation + " or " + OwnEgressAnnotation + ")"
	case ofNetworkAlone(key):
		return " (it is for the network configuration alone)"
	}
	hint := strings.TrimPrefix(terms.DidYouMean(key, annotationKeys), ", ")
	if hint == "" {
		return ""
	}
	return " (" + hint + ")"
}

func endsIn(key string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(key, s) })
}

// ofNetworkAlone says that an annotation that nobody reads is a key of the network configuration.
func ofNetworkAlone(key string) bool {
	return key == "mode" || endsIn(key, "-mode", "-place", "-queue", "-horizon", "light-share", "heavy-threshold", "shaper", "ceiling")
}

func (p *parser) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(p.config.Warnings, text) { // limits are read again where settings contradict each other
		p.config.Warnings = append(p.config.Warnings, text)
	}
}

// Namespace is what the operator set for the pods of a namespace: annotations of the
// Namespace object by their names, those of [NamespaceAnnotations], each as [Cut] keeps
// it. It is nil where nothing is set, or nothing is known of the namespace.
type Namespace map[string]string

// namespaceKeys are the annotations of a Namespace, without the domain.
var namespaceKeys = []string{"default-ingress-rate", "default-egress-rate", "max-ingress-rate", "max-egress-rate", "node-ingress-rate", "node-egress-rate", enforceAnnotation}

// noRate takes the node's default away from a namespace.
const noRate = "none"

// NamespaceAnnotations returns the annotations of a Namespace that are podweir's.
func NamespaceAnnotations() []string { return inDomain(namespaceKeys) }

// inDomain puts podweir's domain before each name.
func inDomain(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = AnnotationDomain + k
	}
	return out
}

// ofNamespace finds an annotation of the pod's Namespace; nil if it is absent.
func (p *parser) ofNamespace(key string) *source {
	value, ok := p.namespace[AnnotationDomain+key]
	if !ok {
		return nil
	}
	return &source{
		field: "namespace annotation " + AnnotationDomain + key, value: value, origin: ofNamespace,
		mayBeNone: strings.HasPrefix(key, "default-") || strings.HasPrefix(key, "node-"), bad: tooLong(value),
	}
}
