// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package lab makes pods through a real CNI conflist on one machine, puts load
// on them and measures what passed.
//
// A lab is one node namespace, in which every CNI plugin runs, client
// namespaces that the node routes to, and pods (namespaces) that CNI ADD
// connects. The host's own network namespace is never touched:
//
//	client ── veth ── node ── veth made by ptp, shaped by the plugin under test ── pod
//
// Everything needs root. A program that uses a lab calls [WorkerMain] first
// thing in main or TestMain, because load generators are child processes that
// execute the same binary inside a namespace.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/podweir/podweir/e2e/step"
)

// namePrefix starts the name of every namespace, network and directory that a
// lab makes; the process ID follows, so that the next lab can tell what a
// crashed one left behind.
const namePrefix = "pwlab"

// nodeSuffix ends the name of the node's namespace.
const nodeSuffix = "-node"

// cleanupTimeout bounds the removal of one pod when the lab closes. The
// reference plugins take 50 ms, an RCU-bound detach some 100 ms.
const cleanupTimeout = 10 * time.Second

// congestionControl is the TCP congestion control of every load generator that does not
// name its own, whatever the host's default is.
const congestionControl = "cubic"

// Options are the choices of a lab; the zero value works in a checkout after
// `make build refplugins` if the working directory is its root.
type Options struct {
	// PluginDirs are searched for CNI plugins, first hit wins. Empty means
	// bin and bin/ref below the root of the checkout.
	PluginDirs []string
	// PluginLog receives what plugins write to stderr. Nil discards it.
	PluginLog io.Writer
}

// Lab is a set of namespaces with a node in the middle. Its methods are safe
// for concurrent use.
type Lab struct {
	opts Options
	name string
	dir  string
	node *Netns

	mu       sync.Mutex
	closed   bool
	closers  []*closer // run last first
	subnets  int       // given out so far
	podCount int
	ports    int // given to iperf3 so far
}

// closer undoes one thing that the lab made.
type closer struct {
	what string
	undo func(context.Context) error
}

// New makes a lab with a node namespace and nothing else, after it has removed
// what crashed labs left behind. The caller must call Close; cancelling ctx
// later does not remove anything by itself.
func New(ctx context.Context, opts Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("a lab needs root, the effective user ID is %d", os.Geteuid())
	}
	if err := opts.complete(); err != nil {
		return nil, err
	}
	opts.sweep(ctx)
	l := &Lab{
		opts: opts,
		name: fmt.Sprintf("%s%d-%04x", namePrefix, os.Getpid(), rand.Uint32()&0xFFFF),
	}
	l.dir = filepath.Join(stateRoot, l.name)
	if err := l.start(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (o *Options) complete() (err error) {
	defer step.End(&err)
	if len(o.PluginDirs) > 0 {
		return nil
	}
	root := step.Get(checkoutRoot())
	o.PluginDirs = []string{filepath.Join(root, "bin"), filepath.Join(root, "bin", "ref")}
	return nil
}

// checkoutRoot is the nearest directory upwards that holds go.mod.
func checkoutRoot() (_ string, err error) {
	defer step.End(&err)
	dir := step.Get(os.Getwd())
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod in %s or above: run inside the checkout", dir)
		}
	}
}

func (l *Lab) start() (err error) {
	defer step.End(&err)
	err = os.MkdirAll(l.dir, 0o700)
	for tries := 0; errors.Is(err, fs.ErrNotExist) && tries < 10; tries++ {
		err = os.MkdirAll(l.dir, 0o700) // another lab was the last one, and took the directory of all away
	}
	step.Say(err, "make the lab's directory")
	l.onClose("directory "+l.dir, func(context.Context) error {
		err := os.RemoveAll(l.dir)
		_ = os.Remove(stateRoot) // it stays while another lab is in it
		return err
	})
	step.OK(l.needBPFFS())
	node, _, err := l.newNamespace(nodeSuffix)
	step.OK(err)
	l.node = node
	return node.Run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
}

// namespaceSetup is what every namespace has. Duplicate address detection would cost each pod
// a second or two. One run must not start with the window that the last one ended with. And a
// connection that has ended keeps its port for a minute, of which there are 28,000: a client of
// 16,000 fresh ones a second would wait.
const namespaceSetup = `ip link set lo up
sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0 net.ipv4.tcp_no_metrics_save=1 net.ipv4.tcp_tw_reuse=1
sysctl -qw net.ipv4.ip_local_port_range='16384 65535'`

// newNamespace makes a namespace with its loopback up, that goes with the lab, or
// earlier by its closer.
func (l *Lab) newNamespace(suffix string) (_ *Netns, _ *closer, err error) {
	defer step.End(&err)
	ns := step.Get(newNetns(l.name + suffix))
	c := l.onClose("namespace "+ns.Name(), func(context.Context) error { return ns.close() })
	return ns, c, ns.Run(namespaceSetup)
}

// Node is the namespace in which the host-side devices are and CNI plugins run.
func (l *Lab) Node() *Netns { return l.node }

// Name is unique to the lab; the names of its namespaces and networks start
// with it.
func (l *Lab) Name() string { return l.name }

// Dir is a private directory that goes with the lab.
func (l *Lab) Dir() string { return l.dir }

// Close deletes the pods by CNI DEL, ends every process and removes every
// namespace of the lab, in the reverse order of their making. It returns what
// could not be removed. A second call does nothing. It does not look at the
// context the lab was made with, so it works after a cancellation.
func (l *Lab) Close() error {
	l.mu.Lock()
	closers := l.closers
	l.closers, l.closed = nil, true
	l.mu.Unlock()
	var errs []error
	for _, c := range slices.Backward(closers) {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		if err := c.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", c.what, err))
		}
		cancel()
	}
	return errors.Join(errs...)
}

// onClose registers undo to run when the lab closes, or earlier by closeNow. If the lab is
// closed already, it undoes at once.
func (l *Lab) onClose(what string, undo func(context.Context) error) *closer {
	c := &closer{what, undo}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := undo(ctx); err != nil {
			log := slog.Default()
			log.Error("remove after close", "what", what, "error", err)
		}
		return c
	}
	defer l.mu.Unlock()
	l.closers = append(l.closers, c)
	return c
}

// closeNow undoes one registered thing; one that was undone is no error.
func (l *Lab) closeNow(ctx context.Context, c *closer) error {
	l.mu.Lock()
	i := slices.Index(l.closers, c)
	if i >= 0 {
		l.closers = slices.Delete(l.closers, i, i+1)
	}
	l.mu.Unlock()
	if i < 0 {
		return nil
	}
	return c.undo(ctx)
}
