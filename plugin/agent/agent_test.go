// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/podweir/podweir/plugin/agent"
	"github.com/podweir/podweir/plugin/agent/uninstall"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// diary keeps the order of what happens.
type diary struct {
	mu  sync.Mutex
	all []string
}

func (d *diary) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, text)
}

func (d *diary) part(name string) agent.Part {
	return agent.Part{Name: name, Run: func(ctx context.Context) error {
		d.note(name + " begins")
		<-ctx.Done()
		d.note(name + " ends")
		return nil
	}}
}

func (d *diary) config(verdict uninstall.Verdict) agent.Config {
	return agent.Config{
		Parts: []agent.Part{d.part("part")}, Log: slog.New(slog.DiscardHandler),
		Ask: func(ctx context.Context) uninstall.Verdict {
			if ctx.Err() != nil {
				d.note("asked too late")
			}
			d.note("asked")
			return verdict
		},
		Remove: func(ctx context.Context) error {
			if _, limited := ctx.Deadline(); ctx.Err() != nil || !limited {
				d.note("removal without its time")
			}
			d.note("removed")
			return nil
		},
	}
}

// end runs the agent, and ends it when everything is under way.
func end(t *testing.T, c agent.Config) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, c) }()
	synctest.Wait()
	cancel()
	return <-done
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		verdict uninstall.Verdict
		want    []string
	}{
		// The parts work on while it is asked.
		"an upgrade":   {uninstall.Keep, []string{"part begins", "asked", "part ends"}},
		"not decided":  {uninstall.Wait, []string{"part begins", "asked", "part ends"}},
		"an uninstall": {uninstall.Remove, []string{"part begins", "asked", "part ends", "removed"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			if err := end(t, d.config(test.verdict)); err != nil || !slices.Equal(d.all, test.want) {
				t.Errorf("%s: Run() = %v, %q, want nil, %q", name, err, d.all, test.want)
			}
		})
	}
}

func TestRunWithoutDaemonSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c := d.config(uninstall.Remove)
		c.Ask = nil
		if err := end(t, c); err != nil || !slices.Equal(d.all, []string{"part begins", "part ends"}) {
			t.Errorf("Run() = %v, %q, want that nothing is removed", err, d.all)
		}
	})
}

func TestRemovalThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c := d.config(uninstall.Remove)
		c.Remove = func(context.Context) error { return errors.New("read-only file system") }
		if err := end(t, c); err == nil || !strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), "podweir uninstall") {
			t.Errorf("Run() = %v, want the cause and what to do", err)
		}
	})
}

// A part that fails ends the agent, which is restarted, and nothing is asked or
// removed.
func TestPartThatFails(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"an error": errors.New("address in use"), "ended by itself": nil} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			c := d.config(uninstall.Remove)
			c.Parts = append(c.Parts, agent.Part{Name: "http", Run: func(context.Context) error { return result }})
			err := agent.Run(t.Context(), c)
			if err == nil || !strings.HasPrefix(err.Error(), "http: ") {
				t.Errorf("%s: Run() = %v, want an error that names the part", name, err)
			}
			if slices.Contains(d.all, "asked") || slices.Contains(d.all, "removed") {
				t.Errorf("%s: %q, want nothing to be asked or removed", name, d.all)
			}
		})
	}
}

// An agent that waits for another one runs what is in nobody's way, and leaves the
// node alone when it is uninstalled.
func TestRunWhileAnotherKeepsTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c := d.config(uninstall.Remove)
		waits := d.part("delivery")
		waits.Waits = true
		c.Parts = append(c.Parts, waits)
		c.Take = func(ctx context.Context) (func(), error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if err := end(t, c); err != nil || !slices.Equal(d.all, []string{"part begins", "part ends"}) {
			t.Errorf("Run() = %v, %q, want only the part that does not wait, and nothing removed", err, d.all)
		}
	})
}

// The node is kept until podweir is removed from it.
func TestNodeIsKeptToTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c := d.config(uninstall.Remove)
		c.Parts[0].Waits = true
		c.Take = func(context.Context) (func(), error) {
			d.note("taken")
			return func() { d.note("released") }, nil
		}
		want := []string{"taken", "part begins", "asked", "part ends", "removed", "released"}
		if err := end(t, c); err != nil || !slices.Equal(d.all, want) {
			t.Errorf("Run() = %v, %q, want %q", err, d.all, want)
		}
	})
}

func TestTakeNode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	never := func() { t.Error("it waits for nobody") }
	release, err := agent.TakeNode(t.Context(), dir, never)
	must.OK(t, err)
	waits, taken := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		_, err := agent.TakeNode(t.Context(), dir, func() { waits <- struct{}{} })
		taken <- err
	}()
	select {
	case <-waits:
	case err := <-taken:
		t.Fatalf("two agents keep the node (%v)", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := agent.TakeNode(ended, dir, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("TakeNode() = %v, want that it was told to end", err)
	}
	release()
	if err := <-taken; err != nil {
		t.Errorf("TakeNode() = %v when the other one has ended", err)
	}
	if _, err := agent.TakeNode(t.Context(), "/dev/null/x", never); err == nil || !strings.Contains(err.Error(), "/dev/null") {
		t.Errorf("TakeNode() = %v, want an error that names the directory", err)
	}
}
