// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/terms"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"bandwidth", "egress", "ingress", "maxRate"}
	for word, want := range map[string]string{
		"bandwdth": "bandwidth", "bnadwidth": "bandwidth", "Bandwidth": "bandwidth", "banwidht": "bandwidth", "bnwdht": "", "badwith": "bandwidth",
		"egres": "egress", "engress": "egress", "maxrate": "maxRate", "maxrte": "maxRate", "portMappings": "", "x": "", "": "",
		strings.Repeat("bandwidth", 100): "",
	} {
		if got := terms.Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
	if got := terms.DidYouMean("bandwdth", words); got != `, did you mean "bandwidth"?` {
		t.Errorf("DidYouMean = %q", got)
	}
	if got := terms.DidYouMean("portMappings", words); got != "" {
		t.Errorf("DidYouMean = %q, want nothing", got)
	}
}
