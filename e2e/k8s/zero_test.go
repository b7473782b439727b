// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// TestPrivilegedNothingExceeded is the last test of the package. A pod at its limit is
// watched and found within it, and in the whole run no pod was told to exceed its limit:
// no test takes packets past one. The API server keeps Events for an hour.
func TestPrivilegedNothingExceeded(t *testing.T) {
	mark.Nightly(t, "it looks back on a whole run")
	suite.Install(t)
	p := run(t, "within", 0, workload.Limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	r := load(t, p, peer, workload.Wait(15*time.Second))
	clustertest.Judge(t, "while its rate is watched", r, 20_000_000, 10_000_000)
	metrics(t, p.Node, func(page string) error {
		lines := strings.Split(strings.TrimSpace(grep(page, "podweir_pod_enforced{")), "\n")
		own := 0
		for _, line := range lines {
			if strings.Contains(line, `pod="within"`) && strings.HasSuffix(line, "} 1") {
				own++
			}
		}
		if own != 2 {
			return fmt.Errorf("%d directions of the pod are held to their limits, want 2: %q", own, lines)
		}
		return nil
	})
	if told := suite.Kubectl(t, "get", "events", "-A", "--field-selector", "reason=LimitExceeded", "-o", "name"); told != "" {
		t.Errorf("pods were told to exceed their limits:\n%s", suite.Kubectl(t, "get", "events", "-A", "--field-selector", "reason=LimitExceeded"))
	}
}
