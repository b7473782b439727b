// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package version

import (
	"runtime/debug"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestFromBuildInfo(t *testing.T) {
	vcs := func(revision, modified string) []debug.BuildSetting {
		return []debug.BuildSetting{
			{Key: "vcs", Value: "git"},
			{Key: "vcs.revision", Value: revision},
			{Key: "vcs.modified", Value: modified},
		}
	}
	const hash = "0123456789abcdef0123456789abcdef01234567"
	for _, tc := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"go install of a release", debug.BuildInfo{Main: debug.Module{Version: "v0.3.1"}}, "v0.3.1"},
		{"module version wins over revision", debug.BuildInfo{Main: debug.Module{Version: "v0.3.1"}, Settings: vcs(hash, "false")}, "v0.3.1"},
		{"go build in a clean checkout", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs(hash, "false")}, "devel-0123456789ab"},
		{"go build in a dirty checkout", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs(hash, "true")}, "devel-0123456789ab-dirty"},
		{"short revision", debug.BuildInfo{Settings: vcs("abc", "false")}, "devel-abc"},
		{"without version control", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			must.Be(t, "fromBuildInfo()", tc.want, fromBuildInfo(&tc.info))
		})
	}
}

func TestStringPrefersTheStamp(t *testing.T) {
	if String() == "" {
		t.Error("String() is empty in an unstamped build")
	}
	t.Cleanup(func() { stamped = "" })
	stamped = "v1.2.3-4-gabcdef"
	must.Be(t, "String() of a stamped build", stamped, String())
}
