// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"github.com/podweir/podweir/plugin/terms"
)

// Bypass marks the ingress limits at the host side of devices: packets go past them, for
// that reason.
func (r *Report) Bypass(why string) {
	for i := range r.Attachments {
		r.Attachments[i].bypass(true, why)
	}
}

// ReadAhead marks the ingress limit of a pod, by the container ID of its sandbox, if it is in
// the pod: the pod's runtime reads what comes ahead of it, for that reason.
func (r *Report) ReadAhead(containerID, why string) {
	for i := range r.Attachments {
		if r.Attachments[i].ID.ContainerID == containerID {
			r.Attachments[i].bypass(false, why)
		}
	}
}

// bypass marks the ingress limits on one of the sides.
func (a *Attachment) bypass(host bool, why string) {
	for i := range a.Directions {
		d := &a.Directions[i]
		if d.Direction.Is == terms.Ingress && (d.Side.Is == terms.SideHost) == host && !d.Observed() {
			d.Bypassed, d.CapHolds = why, false
		}
	}
}
