// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
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

// notes has the agent run and end without an error, and fails the test unless this happened.
func (d *diary) notes(t *testing.T, c agent.Config, want ...string) {
	t.Helper()
	must.OK(t, end(t, c))
	must.Match(t, "what happened", want, d.all)
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
			t.Log(name)
			d.notes(t, d.config(test.verdict), test.want...)
		})
	}
}

// What a successor needs is free before it is known what SIGTERM means.
func TestPartThatYields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c := d.config(uninstall.Keep)
		c.Parts[0].Yields = true
		ask := c.Ask
		c.Ask = func(ctx context.Context) uninstall.Verdict {
			synctest.Wait()
			return ask(ctx)
		}
		d.notes(t, c, "part begins", "part ends", "asked")
	})
}

func TestRunWithoutDaemonSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c := d.config(uninstall.Remove)
		c.Ask = nil
		d.notes(t, c, "part begins", "part ends")
	})
}

func TestRemovalThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c := d.config(uninstall.Remove)
		c.Remove = func(context.Context) error { return errors.New("read-only file system") }
		must.Fail(t, "Run()", end(t, c), "read-only", "podweir uninstall")
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
			must.Fail(t, name, agent.Run(t.Context(), c), "http: ")
			must.Have(t, name, strings.Join(d.all, " "), "!asked", "!removed")
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
		d.notes(t, c, "part begins", "part ends")
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
		d.notes(t, c, "taken", "part begins", "asked", "part ends", "removed", "released")
	})
}

func TestTakeNode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	never := func() { t.Error("it waits for nobody") }
	release := must.Get(agent.TakeNode(t.Context(), dir, never))(t)
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
	must.Fail(t, "TakeNode() that was told to end", must.Err(agent.TakeNode(ended, dir, func() {})), context.Canceled.Error())
	release()
	must.OK(t, <-taken)
	must.Fail(t, "TakeNode() of no directory", must.Err(agent.TakeNode(t.Context(), "/dev/null/x", never)), "/dev/null")
}
