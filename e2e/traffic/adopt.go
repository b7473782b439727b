// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"errors"

	"github.com/podweir/podweir/e2e/lab"
)

// NewRigOf is a rig of hosts that the lab has adopted, instead of its own: a
// client and the pod that nobody limits. The lab goes with the rig, also if an
// error is returned.
func NewRigOf(l *lab.Lab, client *lab.Host, free *lab.Pod) (*Rig, error) {
	r := &Rig{Lab: l, Client: client, carried: map[string]float64{}}
	var err error
	if r.Free, err = r.TargetOf(free); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return r, nil
}

// TargetOf puts meters on a pod that the rig's lab has adopted. Close lets go
// of it.
func (r *Rig) TargetOf(pod *lab.Pod) (*Target, error) {
	t := &Target{Pod: pod, rig: r}
	if err := t.freshMeters(); err != nil {
		return nil, errors.Join(err, t.Close(context.Background()))
	}
	return t, nil
}
