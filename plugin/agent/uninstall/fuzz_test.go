// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package uninstall_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/agent/uninstall"
)

// FuzzDaemonSets: no answer of the API server breaks the decoders, half a list is none,
// and only a deletion is one: the agent removes itself after it.
func FuzzDaemonSets(f *testing.F) {
	const event = `{"type":"DELETED","object":{"metadata":{"name":"podweir","uid":"a"}}}`
	for _, seed := range []string{
		listOfOne, emptyList, statusText, event + "\n" + event, strings.Replace(event, "DELETED", "MODIFIED", 1),
		strings.Replace(event, `"uid"`, `"deletionTimestamp":"2026-01-01T00:00:00Z","uid"`, 1), `{"type":"ERROR","object":` + statusText + `}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		d := uninstall.NewDaemonSets(&answers{list: raw, watch: raw}, "kube-system", "podweir")
		found, version, err := d.List(t.Context())
		if (err == nil) != (version != "") || err != nil && found != nil {
			t.Errorf("List() = %v, %q, %v", found, version, err)
		}
		gone := false
		err = d.Watch(t.Context(), "7", func(e uninstall.Event) { gone = gone || e.Kind == uninstall.Gone })
		// A name or a kind may be written in escapes.
		if plain := !strings.Contains(raw, `\`); gone && plain && (!strings.Contains(raw, "DELETED") || !strings.Contains(raw, "podweir")) {
			t.Errorf("a deletion is seen that nobody told of; the watch ends with %v", err)
		}
	})
}
