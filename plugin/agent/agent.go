// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package agent runs the parts of podweir's agent side by side, and ends them: by
// leaving everything as it is, or by leaving nothing if podweir is uninstalled. It
// is never in the way of a packet: what is shaped stays shaped without it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/podweir/podweir/plugin/agent/uninstall"
)

// Part is one of the things that the agent does all the time.
type Part struct {
	// Name is one word.
	Name string
	// Run works until its context ends and then returns nil. What it can live with
	// it logs and tries again; an error ends the agent.
	Run func(ctx context.Context) error
}

// Config is what the agent does.
type Config struct {
	Parts []Part
	// Ask says what SIGTERM means; nil means that it never is an uninstall.
	Ask func(ctx context.Context) uninstall.Verdict
	// Remove takes podweir off the node. It is called when every part has ended.
	Remove func(ctx context.Context) error
	Log    *slog.Logger
}

// RemoveTimeout bounds [Config.Remove]. With [uninstall.Window] it has to fit into
// the pod's terminationGracePeriodSeconds.
const RemoveTimeout = 40 * time.Second

// Run works until ctx ends, which is SIGTERM. The parts go on until it is known what
// that means: a pod that starts meanwhile is shaped like any other.
func Run(ctx context.Context, c Config) error {
	parts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, all := errgroup.WithContext(parts)
	for _, p := range c.Parts {
		group.Go(func() error {
			err := p.Run(all)
			if err == nil && all.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil && all.Err() == nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			return nil
		})
	}
	select {
	case <-all.Done():
		return group.Wait()
	case <-ctx.Done():
	}
	verdict := uninstall.Keep
	if c.Ask != nil {
		c.Log.Info("asked to end: looking whether podweir is uninstalled", "atMost", uninstall.Window.String())
		verdict = c.Ask(all)
	}
	cancel()
	if err := group.Wait(); err != nil {
		c.Log.Error("end", "error", err)
	}
	if verdict != uninstall.Remove || c.Remove == nil {
		c.Log.Info("end: everything stays as it is, and shaped")
		return nil
	}
	c.Log.Info("podweir is uninstalled: removing it from this node")
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), RemoveTimeout)
	defer stop()
	if err := c.Remove(end); err != nil {
		return fmt.Errorf("remove podweir from this node (`podweir uninstall` does the rest): %w", err)
	}
	c.Log.Info("podweir is removed from this node")
	return nil
}
