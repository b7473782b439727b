// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mark_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// recorder is a test that notes why it was skipped, and goes on.
type recorder struct {
	testing.TB
	why string
}

func (*recorder) Helper()         {}
func (r *recorder) Skip(a ...any) { r.why = fmt.Sprint(a...) }

func TestMarksSkipByTierAndKernel(t *testing.T) {
	for _, tt := range []struct {
		tier, guest     string
		nightly, kernel bool // what is skipped
	}{
		{tier: ""},
		{tier: mark.TierAll},
		{tier: mark.TierAll, guest: "1"},
		{tier: mark.TierTest, nightly: true},
		{tier: mark.TierGate, nightly: true},
		{tier: mark.TierTest, guest: "1", nightly: true, kernel: true},
		{tier: mark.TierGate, guest: "1", nightly: true, kernel: true},
		{tier: "", guest: "1"},
	} {
		t.Setenv(mark.EnvTier, tt.tier)
		t.Setenv(mark.EnvGuest, tt.guest)
		for name, c := range map[string]struct {
			mark func(testing.TB, string)
			want bool
		}{
			"Nightly":        {mark.Nightly, tt.nightly},
			"NightlyKernels": {mark.NightlyKernels, tt.kernel},
			"Slow":           {mark.Slow, testing.Short()},
			"Timed":          {mark.Timed, false},
			"Kernels":        {mark.Kernels, false},
		} {
			r := &recorder{TB: t}
			c.mark(r, "it takes minutes")
			must.Be(t, fmt.Sprintf("%s in tier %q, guest %q: skipped", name, tt.tier, tt.guest), c.want, r.why != "")
			if r.why != "" && (!strings.HasPrefix(r.why, mark.SkipPrefix) || !strings.HasSuffix(r.why, "it takes minutes")) {
				t.Errorf("%s skips with %q, want the prefix and the reason", name, r.why)
			}
		}
	}
}
