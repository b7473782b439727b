// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Every command that asks the container runtime can be given its socket.
func TestCRISocket(t *testing.T) {
	for _, name := range []string{"agent", "doctor", "install", "uninstall"} {
		if cmd, _, err := newRoot().Find([]string{name}); err != nil || cmd.Flags().Lookup("cri-socket") == nil {
			t.Errorf("podweir %s (%v) has no --cri-socket", name, err)
		}
	}
	const socket = "/nowhere/containerd.sock"
	for name, args := range map[string][]string{"by the flag": {"--cri-socket", socket}, "as the chart sets it in a pod": nil} {
		t.Run(name, func(t *testing.T) {
			if args == nil {
				t.Setenv("PODWEIR_CRI_SOCKET", socket)
			}
			// Without conflists the doctor says what it could not find out.
			out, _ := runPodweir(t, append([]string{"doctor", "--root", t.TempDir(), "-o", "json"}, args...)...)
			var rep struct {
				Checks []struct{ Evidence []string }
			}
			if err := json.Unmarshal([]byte(out), &rep); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(rep.Checks, func(c struct{ Evidence []string }) bool {
				return slices.ContainsFunc(c.Evidence, func(text string) bool { return strings.Contains(text, socket) })
			}) {
				t.Errorf("the doctor did not ask at %s:\n%s", socket, out)
			}
		})
	}
}
