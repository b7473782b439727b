// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import "github.com/podweir/podweir/plugin/netconf"

// rememberNamespaces begins with what podweir-cni works with.
func (r *Reconciler) rememberNamespaces() {
	if r.cfg.Namespaces == nil {
		return
	}
	names, err := r.cfg.Paths.Mail().RecordedNamespaces()
	if err != nil {
		r.cfg.Log.Error("recorded rates of namespaces not listed", "error", err)
	}
	for _, name := range names {
		rates, err := r.cfg.Paths.Mail().Namespace(name)
		if err != nil {
			r.cfg.Log.Error("recorded rates of a namespace not read: the API server will be queried", "error", err)
		}
		r.cfg.Namespaces.Remember(name, rates)
	}
}

// namespaceTold records the rates of a namespace for podweir-cni, also if they are what
// they were, since the record may be gone, and has its pods looked at if they changed.
func (r *Reconciler) namespaceTold(name string, rates netconf.Namespace, changed bool) {
	if err := r.cfg.Paths.Mail().RecordNamespace(name, rates); err != nil {
		r.cfg.Log.Error("rates of a namespace not recorded: new pods get the rates of the node until the agent reconciles them", "error", err)
	}
	if !changed {
		return
	}
	for _, p := range r.cfg.Pods.List() {
		if p.Namespace == name {
			r.queue.add(key{uid: p.UID}, 0)
		}
	}
}

// podChanged asks for a look at a pod, and for its namespace: before podweir-cni is
// called for the pod, if the API server is quick.
func (r *Reconciler) podChanged(uid string) {
	if p, ok := r.cfg.Pods.Pod(uid); ok && r.cfg.Namespaces != nil && p.NeedsNamespace() {
		r.cfg.Namespaces.Want(p.Namespace)
	}
	r.queue.add(key{uid: uid}, 0)
}

func (l *look) rates() (rates netconf.Namespace, known bool) {
	if l.cfg.Namespaces == nil {
		return nil, true
	}
	rates, known = l.cfg.Namespaces.Rates(l.pod.Namespace)
	if !known && l.pod.NeedsNamespace() {
		l.cfg.Namespaces.Want(l.pod.Namespace)
	}
	return rates, known
}
