// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import "github.com/podweir/podweir/plugin/hostif"

// Changes is for the tests of this package.
var Changes = changes

// ProbeRedirectWith is [ProbeRedirect] in the namespace of a handle, which the calling
// thread is in, with a change to the device that sends.
func ProbeRedirectWith(h *hostif.Handle, progFD int, change func(near hostif.Interface) error) (bool, error) {
	near, far, err := probePair(h)
	if err == nil {
		err = change(near)
	}
	if err != nil {
		return false, err
	}
	return probeBetween(h, near, far, progFD)
}
