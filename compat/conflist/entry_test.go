// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
)

func TestDifferences(t *testing.T) {
	for name, tc := range map[string]struct{ a, b, want string }{
		"the same":             {conflist.DefaultEntry, conflist.DefaultEntry, ""},
		"written otherwise":    {`{"type":"podweir-cni","maxRate":"1G","queue":"tbf"}`, "{\n \"queue\": \"tbf\", \"maxRate\":\"1\\u0047\", \"type\":\"podweir-cni\"}", ""},
		"one is missing":       {conflist.DefaultEntry, `{"type":"podweir-cni","maxRate":"1G"}`, "maxRate"},
		"one is left over":     {`{"type":"podweir-cni","onError":"closed"}`, conflist.DefaultEntry, "onError"},
		"other values":         {`{"policy":"flat","podAnnotations":["a","b"],"queue":"tbf"}`, `{"policy":"strict","podAnnotations":["a"],"queue":"tbf"}`, "podAnnotations,policy"},
		"what the runtime has": {`{"type":"podweir-cni","name":"n","cniVersion":"1.0.0"}`, conflist.DefaultEntry, ""},
		"no object":            {`[]`, conflist.DefaultEntry, ""},
	} {
		if got := strings.Join(conflist.Differences([]byte(tc.a), []byte(tc.b)), ","); got != tc.want {
			t.Errorf("%s: Differences() = %q, want %q", name, got, tc.want)
		}
	}
}
