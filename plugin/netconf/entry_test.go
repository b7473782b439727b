// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/netconf"
)

func TestParseEntry(t *testing.T) {
	t.Parallel()
	const entry = `{"cniVersion":"1.0.0","name":"net","type":"podweir-cni","onError":"closed","runtimeConfig":{"bandwidth":{"egressRate":1}}%s}`
	for name, tc := range map[string]struct {
		entry       string
		annotations map[string]string
		egress      int
		closed      bool
		err         string
	}{
		"annotations": {
			entry: strings.Replace(entry, "%s", "", 1), annotations: map[string]string{"kubernetes.io/egress-bandwidth": "7M", "x": "y"},
			egress: 7e6, closed: true,
		},
		"none":           {entry: strings.Replace(entry, "%s", "", 1), closed: true},
		"a default":      {entry: strings.Replace(entry, "%s", `,"egressRate":"2M"`, 1), egress: 2e6, closed: true},
		"bad annotation": {entry: strings.Replace(entry, "%s", "", 1), annotations: map[string]string{"kubernetes.io/egress-bandwidth": "fast"}, closed: true, err: "annotation kubernetes.io/egress-bandwidth"},
		"null":           {entry: "null", err: "read the node's configuration: not a JSON object"},
		"no JSON":        {entry: "{", err: "read the node's configuration"},
	} {
		got, err := netconf.ParseEntry([]byte(tc.entry), netconf.KeepAnnotations(tc.annotations), nil)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: ParseEntry() = %v, want %q", name, err, tc.err)
		}
		egress := 0
		if l := got.Shaping.Egress; l != nil {
			egress = int(l.Rate)
		}
		if closed := got.OnError == netconf.FailClosed; egress != tc.egress || closed != tc.closed {
			t.Errorf("%s: egress %d, closed %v, want %d, %v", name, egress, closed, tc.egress, tc.closed)
		}
	}
}
