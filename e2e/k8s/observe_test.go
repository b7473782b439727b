// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/mark"
)

const enforceKey = "podweir.io/enforce"

// TestPrivilegedObserve introduces limits as docs/howto/introduce.md does: observed for
// the fleet, then enforced for a Namespace, then for the fleet; and back for a Namespace
// and for a pod.
func TestPrivilegedObserve(t *testing.T) {
	mark.Nightly(t, "it takes a minute or more")
	uninstall(t)
	const soon = "namespaces.interval=10s"
	install(t, soon, "defaults.enforce=observe")
	p := run(t, "observed", 0, limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	operator := newOperator(t)

	p.observed(t, peer, operator, "the fleet")
	annotateNamespace(t, enforceKey+"=limit")
	p.enforced(t, peer, operator, "a Namespace of an observed fleet")

	kubectl(t, "annotate", "--overwrite", "namespace", "default", enforceKey+"=observe")
	install(t, soon, "defaults.enforce=limit")
	p.observed(t, peer, operator, "a Namespace of an enforced fleet")
	kubectl(t, "annotate", "namespace", "default", enforceKey+"-")
	p.enforced(t, peer, operator, "the fleet")

	// Whoever sets a pod's annotations may not lift its limit, unless the operator lists it.
	p.annotate(t, map[string]string{enforceKey: "observe"})
	if e := sees(t, p.Name, enforceKey); e.Type != "Warning" {
		t.Errorf("the Event is %+v, want a warning", e)
	}
	p.enforced(t, peer, operator, "a pod that may not choose")
	install(t, soon, "defaults.podAnnotations={enforce}")
	p.observed(t, peer, operator, "a pod")
	p.annotate(t, map[string]string{enforceKey: ""})
	p.enforced(t, peer, operator, "a pod that wants its limit again")
}

// beyond waits for counters of a pod: whether packets would have waited and would have
// been dropped, in both directions.
func (p *pod) beyond(t *testing.T) {
	t.Helper()
	metrics(t, p.Node, func(page string) error {
		for _, direction := range []string{"egress", "ingress"} {
			for _, disposition := range []string{"would-drop", "would-wait"} {
				line := strings.TrimSpace(grep(grep(grep(grep(page, "podweir_pod_packets_total{"), fmt.Sprintf("pod=%q", p.Name)),
					fmt.Sprintf("direction=%q", direction)), fmt.Sprintf("disposition=%q", disposition)))
				if line == "" || strings.HasSuffix(line, "} 0") {
					return fmt.Errorf("%s, %s: %q", direction, disposition, line)
				}
			}
		}
		return nil
	})
}

// observed waits until nothing holds the pod. Then it is loaded: all passes, what would
// have been lost is counted, and the plan says what its limits would do.
func (p *pod) observed(t *testing.T, peer *pod, operator reader, what string) {
	t.Helper()
	p.stateIs(t, "observe")
	r := load(t, p, peer, func(ctx context.Context) error {
		if err := wait(measured)(ctx); err != nil {
			return err
		}
		operator.gets(t, 0, "plan", "Enforcement would limit 1 pod, observed now: 1 would lose packets at this moment", "WOULD DROP default/observed on "+p.Node.Name,
			"of its limit of 10 Mbit/s", "of its limit of 20 Mbit/s", "would be dropped")
		return nil
	})
	r.holds(t, what+" is observed", 0, 0)
	p.beyond(t)
}

// enforced waits until the pod has its limits, and measures them.
func (p *pod) enforced(t *testing.T, peer *pod, operator reader, what string) {
	t.Helper()
	p.stateIs(t, "")
	p.limited(t, 20_000_000, 10_000_000)
	measure(t, p, peer).holds(t, what+" is enforced", 20_000_000, 10_000_000)
	operator.gets(t, 0, "plan", "Nothing changes for 1 pod with limits that are enforced already.")
}

// stateIs waits until both directions of the pod are not enforced for a reason, or are
// enforced if it is empty.
func (p *pod) stateIs(t *testing.T, reason string) {
	t.Helper()
	eventually(t, time.Minute, "enforcement", func(ctx context.Context) error {
		page, err := fetch(ctx, p.Node, "/metrics")
		if err != nil {
			return err
		}
		lines := grep(grep(page, "podweir_pod_enforced{"), fmt.Sprintf("pod=%q", p.Name))
		want := 0
		for line := range strings.Lines(lines) {
			observed := strings.Contains(line, `reason="observe"`)
			if observed == (reason != "") {
				want++
			}
		}
		if want != 2 {
			return fmt.Errorf("%d of 2 directions have reason %q:\n%s", want, reason, lines)
		}
		return nil
	})
}
