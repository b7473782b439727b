// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import "time"

// Redirect returns what is known of the way through an ifb: its name, and why
// there is none. It is found out by a self-test if it is not known yet.
func (p Paths) Redirect(selfTest func() (string, error)) (way, none string, err error) {
	f, err := p.featuresBy(selfTest)
	if err != nil {
		return "", "", err
	}
	return f.Redirect, f.noIFB(), nil
}

// StillAttached is what [Node.Unenforced] leaves of the record.
var StillAttached = stillAttached

// SetDeadline ends requests to the kernel at t, until the next lock is taken or released.
func (n *Node) SetDeadline(t time.Time) { n.kernel.SetDeadline(t) }
