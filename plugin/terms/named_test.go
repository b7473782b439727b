// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms_test

import (
	"encoding/json"
	"testing"

	"github.com/podweir/podweir/plugin/terms"
)

// What is told has words by their names, as before they were values, and is read back as
// the same.
func TestNamed(t *testing.T) {
	type told struct {
		Direction terms.Named[terms.Direction] `json:"direction"`
		Queue     terms.Named[terms.Queue]     `json:"queue"`
		Hook      terms.Named[terms.Hook]      `json:"hook"`
		Kind      terms.Named[terms.HookKind]  `json:"kind,omitzero"`
	}
	one := told{Direction: terms.Name(terms.Ingress), Queue: terms.Name(terms.QueueTBF), Hook: terms.Name(terms.HookOwnQdisc)}
	const want = `{"direction":"ingress","queue":"tbf","hook":"own-qdisc"}`
	b, err := json.Marshal(one)
	if err != nil || string(b) != want {
		t.Errorf("JSON is %s (%v), want %s", b, err, want)
	}
	var back told
	if err := json.Unmarshal([]byte(want), &back); err != nil || back != one {
		t.Errorf("read back: %+v (%v), want %+v", back, err, one)
	}
	if err := json.Unmarshal([]byte(`{"queue":"fqq"}`), &back); err == nil {
		t.Error("a name of no queue was read")
	}
	if b, _ := json.Marshal(told{}); string(b) != `{"direction":"","queue":"","hook":""}` {
		t.Errorf("no words are %s", b)
	}
}
