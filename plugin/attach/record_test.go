// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
)

// Records of releases before this one have the choices by the names of the directions, and
// so do those of this one: either reads the other's.
func TestRecordHasChoicesByName(t *testing.T) {
	const old = `{"version":1,"id":{"network":"net","containerID":"c1","ifName":"eth0"},"choices":{"ingress":{"majors":[7],"hookKind":1},"egress":{"majors":[8],"hookKind":1,"note":"n"}}}`
	r, err := attach.UnmarshalRecord([]byte(old))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Choices[terms.Egress]; len(r.Choices) != 2 || got.Note != "n" || got.Majors[0] != 8 {
		t.Errorf("choices = %+v, want both, with the note at egress", r.Choices)
	}
	b, err := r.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"egress":{"majors":[8]`, `"ingress":{"majors":[7]`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the record is %s, want %s in it", b, want)
		}
	}
}
