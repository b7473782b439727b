// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/podweir/podweir/plugin/cni"
)

// TestSpokenInEveryChain: with another version in a chain the skeleton refuses ADD and
// DEL of all pods, before onError counts.
func TestSpokenInEveryChain(t *testing.T) {
	chains, err := filepath.Glob("../../compat/conflist/testdata/*.golden.*")
	if err != nil || len(chains) < 5 {
		t.Fatalf("Glob() = %q, %v, want the chains that podweir is spliced into", chains, err)
	}
	for _, chain := range chains {
		raw, err := os.ReadFile(chain)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&version.ConfigDecoder{}).Decode(raw)
		if err != nil || !slices.Contains(cni.SupportedVersions.SupportedVersions(), got) {
			t.Errorf("%s has the CNI version %q, %v, want one of %q", filepath.Base(chain), got, err, cni.SupportedVersions.SupportedVersions())
		}
	}
}
