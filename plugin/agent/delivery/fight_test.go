// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// TestFight has another program undo what podweir writes, each time: podweir stops after
// three rewrites, says which file and what happens to it, follows the primary CNI even so,
// and comes back when the other one is gone.
func TestFight(t *testing.T) {
	mark.Slow(t, "it reads the files of a node 300,000 times")
	dropIn := confDir + "/n/" + conflist.DropInFile
	for name, tc := range map[string]struct {
		file   string
		config func(*delivery.Config)
		undo   func(path string) error
		change string
	}{
		"chain, removed": {confDir + "/" + ours, nil, os.Remove, "removes or renames it"},
		"chain, renamed": {confDir + "/" + ours, nil, func(path string) error { return os.Rename(path, path+".off") }, "removes or renames it"},
		"chain, podweir taken out": {confDir + "/" + ours, nil, func(path string) error {
			return renames(path, network("n", 1, "ptp", "portmap", "other"))
		}, "takes out or changes podweir-cni, so that its chain is ptp, portmap, other"},
		"chain, broken":     {confDir + "/" + ours, nil, func(path string) error { return renames(path, "{") }, "leaves it broken"},
		"drop-in, removed":  {dropIn, recent, os.Remove, "removes or renames it"},
		"drop-in, replaced": {dropIn, recent, func(path string) error { return renames(path, `{"type":"other"}`) }, "replaces its content"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newBlindHost(t, simple())
				h.tick = 2 * time.Second // a look reads a hundred files, and the test lasts a quarter of an hour
				m, _ := h.run(t, tc.config)
				h.eventually(t, "podweir is in the chain", func() bool { return h.shaped() && m.Decision().Problem == "" })
				var undone atomic.Int64
				undo := func() {
					if !h.shaped() {
						return
					}
					if err := tc.undo(h.path(tc.file)); err != nil {
						t.Error(err)
					}
					undone.Add(1)
				}
				for range 40 {
					undo()
					pause(500 * time.Millisecond)
				}
				if n := undone.Load(); n != 4 {
					t.Errorf("undone %d times, want the first writing and three more", n)
				}
				d := m.Decision()
				if d.Fight == nil || d.Fight.File != "/"+tc.file || !strings.Contains(d.Fight.Change, tc.change) ||
					!strings.Contains(d.Problem, "/"+tc.file) || !strings.Contains(d.Problem, tc.change) || d.InForce {
					t.Errorf("decision %+v, want a fight over %s: %s", d, tc.file, tc.change)
				}
				if told := delivery.ToldFight(h.root); told == nil || told.File != "/"+tc.file {
					t.Errorf("the record has the fight %+v", told)
				}
				// Another situation is tried once, and no more often.
				if err := renames(h.path(confDir+"/"+original), network("n", 2, "ptp", "portmap", "more")); err != nil {
					t.Fatal(err)
				}
				for range 40 {
					undo()
					pause(500 * time.Millisecond)
				}
				if n := undone.Load(); n > 5 {
					t.Errorf("undone %d times, want once more after the original changed", n)
				}
				// The other one is gone: podweir is back by itself, and content after a while.
				for range 14 * 60 {
					pause(time.Second)
				}
				if d := m.Decision(); d.Problem != "" || d.Fight != nil || !d.InForce || delivery.ToldFight(h.root) != nil {
					t.Errorf("without the other: decision %+v, record %+v", d, delivery.ToldFight(h.root))
				}
			})
		})
	}
}

// TestFirstFileOfAnother: a name of podweir's that is not the first is never written.
func TestFirstFileOfAnother(t *testing.T) {
	for file, want := range map[string]string{"00-hybridnet.conflist": "watch", "0-x.conflist": "watch", "00-multus.conf": "watch"} {
		synctest.Test(t, func(t *testing.T) {
			raw := network("n", 1, "ptp", "portmap")
			if strings.HasSuffix(file, ".conf") {
				raw = `{"name":"n","type":"multus"}`
			}
			h := newBlindHost(t, map[string]string{confDir + "/" + file: raw, binDir + "/multus": "x"})
			before := h.tree(t)
			m, _ := h.run(t, func(c *delivery.Config) { c.Runtime = "containerd://1.6.36" })
			h.eventually(t, "podweir decided", func() bool { return m.Decision().Delivery != "" })
			if d := m.Decision(); string(d.Delivery) != want || d.Problem != "" || len(before) != len(h.tree(t)) {
				t.Errorf("beside %s: decision %+v, want %s and no file", file, d, want)
			}
		})
	}
}
