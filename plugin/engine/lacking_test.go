// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestLacking: what no pod can have is named, and what depends on a pod's rate is not.
func TestLacking(t *testing.T) {
	t.Parallel()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must.OK(t, err)
	has := map[string]any{
		"boot": strings.TrimSpace(string(boot)), "Prio": true, "HTB": true, "TBF": true, "IFB": true, "tcx": true, "redirect": "bpf",
	}
	const tbf, tcx = "not the queue tbf: the kernel lacks it", "not the mode tcx-podside: the kernel has no TCX"
	for name, tt := range map[string]struct {
		keys  string
		lacks map[string]any
		want  []string
	}{
		"nothing by name":            {``, map[string]any{"HTB": false, "TBF": false, "IFB": false, "tcx": false}, nil},
		"a queue that there is":      {`,"queue":"tbf"`, nil, nil},
		"a queue that there is not":  {`,"queue":"tbf"`, map[string]any{"TBF": false}, []string{tbf}},
		"in one direction":           {`,"egressQueue":"tbf"`, map[string]any{"TBF": false}, []string{tbf}},
		"a queue, observed":          {`,"queue":"tbf","enforce":"observe"`, map[string]any{"TBF": false}, []string{tbf}},
		"TCX that there is not":      {`,"mode":"tcx-podside"`, map[string]any{"tcx": false}, []string{tcx}},
		"an ifb that loses packets":  {`,"ingressPlace":"ifb"`, map[string]any{"redirect": ""}, []string{"packets get lost"}},
		"an ifb if there is one":     {`,"ingressPlace":"prefer-ifb"`, map[string]any{"redirect": ""}, nil},
		"a direction that is others": {`,"queue":"tbf","shaper":"cilium"`, map[string]any{"TBF": false}, nil},
	} {
		paths, features := engine.Paths{Run: t.TempDir()}, maps.Clone(has)
		maps.Copy(features, tt.lacks)
		b, err := json.Marshal(features)
		if err == nil {
			err = os.WriteFile(filepath.Join(paths.Run, "features.json"), b, 0o600)
		}
		must.OK(t, err)
		got, err := paths.Lacking(json.RawMessage(`{"cniVersion":"1.0.0","name":"n","type":"podweir-cni"` + tt.keys + `}`))
		if err != nil || !slices.EqualFunc(got, tt.want, strings.Contains) {
			t.Errorf("%s: Lacking() = %q, %v, want %q", name, got, err, tt.want)
		}
	}
}
