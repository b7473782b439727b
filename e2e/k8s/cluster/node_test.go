// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestWithoutCacheLeavesFilesOfATmpfsIn(t *testing.T) {
	for name, tc := range map[string]struct {
		usage, stat string
		want        uint64
	}{
		"cache and tmpfs":     {"1000\n", "total_cache 600\ntotal_shmem 100\n", 500},
		"no cache":            {"1000\n", "total_cache 0\ntotal_shmem 0\n", 1000},
		"counted differently": {"1000\n", "total_cache 2000\ntotal_shmem 3000\n", 1000},
		"more cache than all": {"1000\n", "total_cache 2000\ntotal_shmem 0\n", 0},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"memory.usage_in_bytes": tc.usage, "memory.stat": tc.stat} {
			must.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		got, err := withoutCache(dir, "memory.usage_in_bytes", "total_cache", "total_shmem")
		if err != nil || got != tc.want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, tc.want)
		}
	}
}
