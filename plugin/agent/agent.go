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
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/uninstall"
)

// Part is one of the things that the agent does all the time.
type Part struct {
	// Name is one word.
	Name string
	// Waits says that it begins when this agent manages the node: what it does would
	// be in the way of another agent.
	Waits bool
	// Yields says that it ends at SIGTERM: a successor, which the kubelet starts at once in place of an agent that was
	// deleted by force, needs what it holds.
	Yields bool
	// Run works until its context ends and then returns nil. What it can live with
	// it logs and tries again; an error ends the agent.
	Run func(ctx context.Context) error
}

// Config is what the agent does.
type Config struct {
	Parts []Part
	// Take waits until no other agent manages the node, and lets others wait until
	// release is called; nil does not wait.
	Take func(ctx context.Context) (release func(), err error)
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
// that means: a pod that starts meanwhile is shaped like any other. An agent that
// still waits for another one to end leaves the node to that one, whatever SIGTERM
// means.
func Run(ctx context.Context, c Config) error {
	parts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, all := errgroup.WithContext(parts)
	r := &running{Config: c, group: group, term: ctx, all: all, keeps: make(chan struct{}), release: func() {}}
	defer func() { r.release() }()
	r.start(all, func(p *Part) bool { return !p.Waits })
	group.Go(func() error {
		err := r.take()
		if r.all.Err() != nil {
			err = nil // it was told to end while it waited
		}
		return err
	})
	select {
	case <-all.Done():
		return group.Wait()
	case <-ctx.Done():
	}
	verdict := r.ask()
	cancel()
	if err := group.Wait(); err != nil {
		c.Log.Error("a part of the agent ended with an error", "error", err)
	}
	if verdict != uninstall.Remove || c.Remove == nil {
		c.Log.Info("agent ended: pods stay shaped")
		return nil
	}
	c.Log.Info("uninstallation detected: podweir is being removed from this node")
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), RemoveTimeout)
	defer stop()
	if err := c.Remove(end); err != nil {
		return fmt.Errorf("remove podweir from this node (`podweir uninstall` does the rest): %w", err)
	}
	c.Log.Info("podweir removed from this node")
	return nil
}

// running is an agent at work.
type running struct {
	Config

	group *errgroup.Group
	// term ends with SIGTERM, all with the agent.
	term, all context.Context
	// keeps is closed when this agent manages the node.
	keeps   chan struct{}
	release func()
}

func (r *running) start(all context.Context, chosen func(*Part) bool) {
	for _, p := range r.Parts {
		if !chosen(&p) {
			continue
		}
		r.group.Go(func() error {
			ctx, cancel := context.WithCancel(all)
			defer cancel()
			if p.Yields {
				defer context.AfterFunc(r.term, cancel)() //nolint:contextcheck // it outlives neither
			}
			err := p.Run(ctx)
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			return nil
		})
	}
}

// take starts the parts that wait for the node.
func (r *running) take() error {
	if r.Take != nil {
		release, err := r.Take(r.all)
		if err != nil {
			return err
		}
		r.release = release
	}
	close(r.keeps)
	r.start(r.all, func(p *Part) bool { return p.Waits })
	return nil
}

// ask says what SIGTERM means.
func (r *running) ask() uninstall.Verdict {
	select {
	case <-r.keeps:
	default:
		r.Log.Info("SIGTERM received while another agent manages this node: nothing is removed")
		return uninstall.Keep
	}
	if r.Ask == nil {
		return uninstall.Keep
	}
	r.Log.Info("SIGTERM received: checking whether podweir is being uninstalled", "atMost", uninstall.Window.String())
	return r.Ask(r.all)
}

// takeInterval is how often a node that another agent keeps is tried again.
const takeInterval = 500 * time.Millisecond

// TakeNode waits until no other agent manages the node, and keeps it until release
// is called or the process ends, however it ends. While it waits it calls waiting,
// again and again.
//
// dir is the directory of probe results and failure records, which all agents of a
// node share. Its lock needs no file of its own.
func TakeNode(ctx context.Context, dir string, waiting func()) (release func(), err error) {
	for {
		release, err := tryNode(dir)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return release, err
		}
		waiting()
		timer := time.NewTimer(takeInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

func tryNode(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("take the node: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("take the node: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("take the node: lock %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}
