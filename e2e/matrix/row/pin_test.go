// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package row_test

import (
	"testing"

	"github.com/podweir/podweir/e2e/matrix/row"
)

func TestBehind(t *testing.T) {
	for _, c := range []struct{ version, newest, want string }{
		{"v1.15.19", "v1.20.2", "5 minor"},
		{"v2.4.2", "v2.4.2", "0"},
		{"v2.4.1", "v2.4.3", "2 patch"},
		{"v3.22.0", "v4.3.0", "1 major"},
		{"v1.5.1-rc.1", "v1.5.1", "0"},
		// Newer than the proxy's newest release, as a prerelease is.
		{"v0.38.0-alpha.1", "v0.37.2", "0"},
	} {
		if got := (row.Pin{Version: c.version, Newest: c.newest}).Behind(); got != c.want {
			t.Errorf("%s beside %s: %q, want %q", c.version, c.newest, got, c.want)
		}
	}
}
