// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"os"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/netconf"
)

// TestReferenceNamesEveryKey holds the reference pages to what netconf reads.
func TestReferenceNamesEveryKey(t *testing.T) {
	for page, names := range map[string][]string{"configuration.md": netconf.Keys(), "annotations.md": netconf.Annotations()} {
		text, err := os.ReadFile("../../docs/reference/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 {
			t.Errorf("%s: there is no key to look for", page)
		}
		for _, name := range names {
			if !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("%s: does not name `%s`", page, name)
			}
		}
	}
}
