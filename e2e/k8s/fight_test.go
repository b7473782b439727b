// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedFight has another program undo what a running agent writes: after three
// rewrites in a minute the agent stops, is not ready, says so in one Event and in the
// doctor, and limits pods by itself; without the other program it comes back.
func TestPrivilegedFight(t *testing.T) {
	mark.Nightly(t, "it takes two minutes: a fight is over after one")
	for name, undo := range map[string]struct {
		delivery, file, change string
		do                     func(path string) error
	}{
		"chain": {"chain", "/etc/cni/net.d/00-podweir-10-lab.conflist", "removes or renames it", os.Remove},
		"drop-in": {"drop-in", "/etc/cni/net.d/lab/50-podweir.conf", "replaces its content", func(path string) error {
			return os.WriteFile(path, []byte(`{"type":"portmap"}`), 0o644)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			uninstall(t)
			install(t, "delivery="+undo.delivery)
			node := suite.Members[0]
			own := agent(t, node)
			f := &fight{path: node.Path(undo.file), undo: undo.do, done: make(chan struct{})}
			t.Cleanup(func() {
				f.stop()
				f.write(t, node, node.Conflist())
			})
			f.begin()
			f.notReady(t, node, undo.file, undo.change)
			// The first writing and three more.
			if n := f.undone.Load(); n != 4 {
				t.Errorf("undone %d times, want 4", n)
			}
			sees(t, own, undo.file, undo.change)
			f.told(t, node, undo.file, undo.change)
			run(t, "besides", 0, limits("20M", "10M")).limited(t, 20_000_000, 10_000_000)
			// Not again, though the other one would.
			if n := f.undone.Load(); n != 4 {
				t.Errorf("undone %d times in the end, want 4", n)
			}
			f.oneEvent(t, own, undo.file)
			f.stop()
			// Another situation: it is tried again.
			f.write(t, node, strings.Replace(node.Conflist(), `"type": "ptp",`, `"type": "ptp", "mtu": 1400,`, 1))
			eventually(t, 100*time.Second, "the agent is ready again", func(ctx context.Context) error {
				_, err := fetch(ctx, node, "/readyz")
				return err
			})
			green(t, node)
			p := run(t, "after", 0, limits("20M", "10M"))
			if !hasLimit(t, p) {
				t.Error("a pod starts without a limit after the fight")
			}
		})
	}
}

// fight is another program that undoes a file of podweir's whenever it is there.
type fight struct {
	path   string
	undo   func(path string) error
	undone atomic.Int64
	done   chan struct{}
	over   atomic.Bool
}

func (f *fight) begin() {
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			if raw, err := os.ReadFile(f.path); err == nil && strings.Contains(string(raw), "podweir-cni") && f.undo(f.path) == nil {
				f.undone.Add(1)
			}
			select {
			case <-f.done:
				return
			case <-tick.C:
			}
		}
	}()
}

func (f *fight) stop() {
	if !f.over.Swap(true) {
		close(f.done)
	}
}

func (f *fight) write(t *testing.T, node *cluster.Node, text string) {
	t.Helper()
	if err := node.WriteFile(cluster.Conflist, text); err != nil {
		t.Error(err)
	}
}

// notReady waits until the agent names the file and what becomes of it.
func (f *fight) notReady(t *testing.T, node *cluster.Node, file, change string) {
	t.Helper()
	eventually(t, time.Minute, "the agent is not ready", func(ctx context.Context) error {
		_, err := fetch(ctx, node, "/readyz")
		if err == nil {
			return errors.New("it is ready")
		}
		for _, part := range []string{"not ready: delivery", file, change} {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("no %q: %w", part, err)
			}
		}
		return nil
	})
}

// told wants the doctor to say so without being asked for it.
func (f *fight) told(t *testing.T, node *cluster.Node, file, change string) {
	t.Helper()
	report, err := suite.Doctor(t.Context(), node)
	must.OK(t, err)
	for _, c := range report.Findings() {
		if c.Code == "PW221" && c.Status == "fail" && strings.Contains(c.Seen, file) && strings.Contains(c.Seen, change) {
			return
		}
	}
	t.Errorf("no PW221 that names %s and says that it %s: %v", file, change, report.Findings())
}

// oneEvent wants one Event of the agent's pod about the file.
func (f *fight) oneEvent(t *testing.T, agent, file string) {
	t.Helper()
	list, err := events(t.Context(), agent)
	must.OK(t, err)
	n := 0
	for _, e := range list {
		if strings.Contains(e.Message, file) {
			n++
			t.Logf("%s: %s", e.Reason, e.Message)
		}
	}
	if n != 1 {
		t.Errorf("%d Events name %s, want one", n, file)
	}
}
