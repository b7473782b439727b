// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist_test

import (
	"bytes"
	"errors"
	"flag"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// FuzzSplice: libcni loads what we made of anything it loads, with the same plugins;
// podweir's file matches its original then, also after another program wrote it as JSON;
// and what we refuse of that is refused for one of the documented reasons.
func FuzzSplice(f *testing.F) {
	for _, raw := range []string{
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp","mtu":1e3},{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`,
		"{\n  \"name\": \"cbr0\",\n  \"plugins\": [\n    {\n      \"type\": \"flannel\"\n    }\n  ]\n}\n",
		`{"name":"n","type":"ptp","Type":"b","plugins":1}`,
		` { "x" : "}{][,\"" , "name":"n" ,"plugins" : [{"type":"a"} , {"type":"b"}] } `,
		`{"podweir":{"source":"a","sha256":""},"name":"n","plugins":[{"type":"a"},{"type":"podweir-cni"}]}`,
	} {
		f.Add(true, []byte(raw))
		f.Add(false, []byte(raw))
	}
	f.Fuzz(func(t *testing.T, list bool, raw []byte) {
		name := "10-x.conf"
		if list {
			name = "10-x.conflist"
		}
		before := bytes.Clone(raw)
		n, err := conflist.Parse(name, raw)
		if err != nil {
			if _, ok := errors.AsType[*conflist.Error](err); !ok {
				t.Fatalf("Parse() error has type %T: %v", err, err)
			}
			return
		}
		if _, err := libcniNetwork(name, raw); err != nil {
			// We read less of it than libcni: versions, other flags.
			return
		}
		out, err := conflist.Splice(n, []byte(entry))
		if !bytes.Equal(before, raw) {
			t.Fatal("Splice() changed its input")
		}
		if err != nil {
			return
		}
		for _, written := range [][]byte{out, []byte(canonical(t, out))} {
			own, err := conflist.Parse("00-podweir-10-x.conflist", written)
			if err != nil {
				t.Fatalf("Parse(Splice()) = %v\nspliced: %q", err, out)
			}
			action, why := conflist.Decide(conflist.Standing{
				Delivery: profiles.Chain, Original: &conflist.File{Name: name, Raw: raw, Network: n},
				Own: &conflist.File{Name: own.File, Raw: written, Network: own}, Entry: []byte(entry),
			})
			if action == conflist.Write {
				t.Fatalf("Decide(Splice()) = %v, %s\nspliced: %q", action, why, written)
			}
		}
		compareByLibcni(t, name, raw, out)
	})
}
