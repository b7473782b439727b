// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/terms"
)

// Who takes a limit away is a value that travels with the record, whatever words the agent
// tells its cause in.
func TestUnenforcedLineNamesTheTaker(t *testing.T) {
	for by, want := range map[engine.Taker]string{
		engine.TakerPod:  "and holds; likely cause: a process in the pod that has CAP_NET_ADMIN, or software on the node",
		engine.TakerNode: "and holds; likely cause: software on the node",
	} {
		u := &engine.Unenforced{
			Pod: "ns/web", Limit: terms.Limit{Direction: terms.Name(terms.Egress)}, Reason: engine.ReasonTampered, Held: true,
			Likely: engine.Likely{Cause: engine.CauseTaken, TakenBy: by},
		}
		if got := UnenforcedLine(u); !strings.HasSuffix(got, want) {
			t.Errorf("taken by %q: %q, want %q at its end", by, got, want)
		}
	}
}
