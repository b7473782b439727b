// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package page_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/e2e/k8s/page"
)

func TestMarkdown(t *testing.T) {
	p := page.Page{
		Date: "2026-11-21", Kernel: "6.18", CPUs: 2, Commit: "0e85ca6",
		Versions: []page.Fact{{What: "Kubernetes", Value: "v1.34.2"}},
		Caps: []page.Cap{
			{Scenario: "Install", What: "before", Direction: "egress", Mean: 700.04e6},
			{
				Scenario: "AgentKilled", What: "under load", Direction: "ingress", Bits: 20_000_000, Mean: 19.98e6,
				WorstSecond: 1.0062, Used: 0.999, Excess: 17918.4, Tenths: []float64{20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 19.5},
			},
		},
		Facts: []page.Fact{{Scenario: "Install", What: "a", Value: "one | two\nthree\n"}},
	}
	got := p.Markdown()
	for _, want := range []string{
		"# podweir in a Kubernetes cluster, 2026-11-21\n",
		"| Kubernetes | v1.34.2 |\n",
		"| Install | before | egress | none | 700.0 |  |  |  |\n",
		"| AgentKilled | under load | ingress | 20M | 19.98 | 1.0062 | 17918 | 0.999 |\n",
		"| Install | a | one \\| two<br>three |\n",
		"## AgentKilled: under load, ingress, cap 20M\n",
		" 20.00  20.00\n 19.50\n```\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("Markdown() has no %q:\n%s", want, got)
		}
	}
}
