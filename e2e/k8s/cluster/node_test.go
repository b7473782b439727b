// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestConflistHasTheChainBehindPtp(t *testing.T) {
	n := &Node{PodCIDR: "10.77.3.0/24"}
	for _, chained := range [][]string{nil, {"bandwidth"}, {"bandwidth", "other"}} {
		var list struct {
			Plugins []struct {
				Type         string
				Capabilities struct{ Bandwidth bool }
				IPAM         struct{ Ranges [][]struct{ Subnet string } }
			}
		}
		if err := json.Unmarshal([]byte(n.Conflist(chained...)), &list); err != nil {
			t.Fatalf("Conflist(%q): %v", chained, err)
		}
		if len(list.Plugins) != 1+len(chained) || list.Plugins[0].Type != "ptp" || list.Plugins[0].IPAM.Ranges[0][0].Subnet != n.PodCIDR {
			t.Fatalf("Conflist(%q) = %+v, want ptp with the node's addresses and the chain", chained, list)
		}
		for i, name := range chained {
			if p := list.Plugins[1+i]; p.Type != name || !p.Capabilities.Bandwidth {
				t.Errorf("Conflist(%q): plugin %d is %+v, want %s with the capability", chained, 1+i, p, name)
			}
		}
	}
}

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
