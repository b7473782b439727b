// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import "strings"

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
