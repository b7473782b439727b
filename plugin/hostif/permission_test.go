// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"testing"

	"golang.org/x/sys/unix"
)

// An error names the capability that is missing, and no other.
func TestPermissionErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{
			"no way in", subscribeError(entryError("/run/netns/x", unix.EPERM)),
			"enter netns /run/netns/x: permission denied, CAP_SYS_ADMIN is needed: operation not permitted",
		},
		{"refused inside", subscribeError(unix.EPERM), "permission denied, CAP_NET_ADMIN is needed: operation not permitted"},
		{"something else", subscribeError(entryError("/run/netns/x", unix.EBADF)), "enter netns /run/netns/x: bad file descriptor"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, c.err, c.want)
		}
	}
}
