// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

// For the tests of this package.
var (
	Changes           = changes
	ProbeRedirectWith = probeRedirect
)
