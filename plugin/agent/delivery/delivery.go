// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package delivery gets podweir into the set-up of a node's pods, keeps it there
// while the primary CNI rewrites its own files, and takes it out again without a
// trace.
//
// It writes to the directories of conflists and of plugins and to one directory
// of its own, as root, and nowhere else; it asks nothing of the kernel.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
)

// Auto lets podweir choose the delivery.
const Auto profiles.Delivery = "auto"

// Deliveries are all that can be requested.
var Deliveries = []profiles.Delivery{Auto, profiles.Chain, profiles.DropIn, profiles.Handed, profiles.NRI, profiles.Watch}

// StateDir has the record of what was installed, below the node's root.
const StateDir = "/var/lib/podweir"

// Config says what to install where. Paths other than Root and Binary are below
// Root.
type Config struct {
	// Root is where the node's root directory is in our own file system, "/" by
	// default.
	Root string
	// ConfDir is the directory of conflists and BinDir that of plugins; they are
	// looked for if empty.
	ConfDir, BinDir string
	// Run is the directory of what counts until the node boots, in our own file system; nothing
	// is kept there if it is empty.
	Run string
	// Binary is the podweir-cni that is installed, in our own file system: by
	// default the one beside the running program.
	Binary string
	// Runtime is what the node's status says, as "containerd://2.1.3"; it is
	// looked for if empty.
	Runtime string
	// Delivery is what the operator asks for, [Auto] if empty.
	Delivery profiles.Delivery
	// Defaults are keys of the plugin's configuration with values for all pods of
	// the node, as docs/reference/configuration.md lists them. [Manager.Install] adds
	// those of the installation before it; "" takes one of them back.
	Defaults map[string]any
	// Hooked says whether the runtime calls the agent for each pod that starts: with
	// the delivery nri the files of a former one stay until it does. nil takes it for
	// granted.
	Hooked func() bool
	// Live may be nil.
	Live detect.Live
	// Log may be nil.
	Log *slog.Logger
	// OnDecision is told every decision that differs from the one before. It must
	// return soon; it may be nil.
	OnDecision func(Decision)
}

// Decision is what was decided, and how far it is carried out.
type Decision struct {
	// Asked is what the operator wants. The choice made of it is in Choice, its
	// Delivery empty if none can be.
	Asked profiles.Delivery `json:"asked"`
	conflist.Choice
	// Profile is the name of the primary CNI's profile, Runtime the container
	// runtime.
	Profile string `json:"profile"`
	Runtime string `json:"runtime"`
	// ConfDir and BinDir are absolute paths on the node.
	ConfDir string `json:"confDir"`
	BinDir  string `json:"binDir"`
	// Network is the name of the network that podweir joins, "" before one was seen.
	Network string `json:"network,omitempty"`
	// Entry is podweir's entry in the chain, Defaults what of it the operator said.
	Entry    string         `json:"entry,omitempty"`
	Defaults map[string]any `json:"defaults,omitempty"`
	// Notes are what else to know of the entry.
	Notes []string `json:"notes,omitempty"`
	// InForce says whether the chain that the runtime uses now has podweir in it.
	InForce bool `json:"inForce"`
	// Fight is a file that another program changes back, nil without one.
	Fight *conflist.Fight `json:"fight,omitempty"`
	// Problem says what stands against it, "" if nothing does.
	Problem string `json:"problem,omitempty"`
}

// Manager installs podweir on one node. Its methods may be called from any
// goroutine.
type Manager struct {
	config Config
	log    *slog.Logger
	root   fs.FS
	tick   time.Duration

	mu       sync.Mutex
	decision Decision

	// busy is held with the lock of the node; what follows belongs to its holder.
	busy        sync.Mutex
	node        *detect.Node
	detected    time.Time
	fingerprint string
	// traces are what [detect.StartTraces] were at the last look, and started is
	// when they last changed.
	traces  []stamp
	started time.Time
	// said is what is kept of Cilium's answers, nil if nothing is yet.
	said *detect.Cilium
	// runtime and defaults are what the operator said, now or, for an installation,
	// at an earlier one; noted says that the record has them.
	runtime  string
	defaults map[string]any
	noted    bool
	// chosen is the last choice that was made with a network to join.
	chosen conflist.Choice
	// unlike is since when files of podweir's have stood that are not as they are
	// wanted, and unlikeAs what was wanted then, and what the files of others were.
	// restless is since when there have been any.
	unlike, restless time.Time
	unlikeAs         string
	source           source
	fights           fight
	placed           map[string]stamp
	// told is whether the runtime was made to look for drop-ins at all, untold
	// whether one changed since.
	told, untold bool
	// needed is when the binary was last found to be needed by others, although the
	// delivery leaves no files, neededBy by whom.
	needed   time.Time
	neededBy error
}

// New checks the configuration; it touches no file. An error is of a setting.
func New(config Config) (*Manager, error) {
	if config.Root == "" {
		config.Root = "/"
	}
	if config.Delivery == "" {
		config.Delivery = Auto
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Binary == "" {
		config.Binary = besideOwn()
	}
	if err := checkConfig(&config); err != nil {
		return nil, err
	}
	return &Manager{
		config: config, log: config.Log, root: detect.HostRoot(config.Root), tick: tick,
		runtime: config.Runtime, defaults: merge(nil, config.Defaults), placed: map[string]stamp{},
		decision: Decision{Asked: config.Delivery, Problem: "nothing is decided yet"},
	}, nil
}

// besideOwn is the plugin's binary beside the running program's.
func besideOwn() string {
	own, err := os.Executable()
	if err != nil {
		return conflist.Type
	}
	return filepath.Join(filepath.Dir(own), conflist.Type)
}

// Decision returns the last decision.
func (m *Manager) Decision() Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.decision
}

// publish tells a decision to whoever wants it, and the log if its problem is
// returned to nobody.
func (m *Manager) publish(d Decision, logged bool) {
	m.mu.Lock()
	same := reflect.DeepEqual(m.decision, d)
	m.decision = d
	m.mu.Unlock()
	if same {
		return
	}
	if logged {
		m.logDecision(&d)
	}
	if m.config.OnDecision != nil {
		m.config.OnDecision(d)
	}
}

func (m *Manager) logDecision(d *Decision) {
	attrs := []any{
		"delivery", string(d.Delivery), "why", d.Why, "asked", string(d.Asked), "profile", d.Profile,
		"runtime", d.Runtime, "conflists", d.ConfDir, "plugins", d.BinDir, "inForce", d.InForce,
	}
	if d.Warning != "" {
		attrs = append(attrs, "warning", d.Warning)
	}
	if len(d.Notes) > 0 {
		attrs = append(attrs, "notes", d.Notes)
	}
	if len(d.Do) > 0 {
		attrs = append(attrs, "do", d.Do)
	}
	if d.Problem == "" {
		m.log.Info("delivery decided", attrs...)
		return
	}
	m.log.Error("delivery failed", append(attrs, "problem", d.Problem)...)
}

// Install brings the node's files to what is decided, once, and returns the
// steps that it took. Settings that it is not given are those of the installation
// before. It fails with [ErrRunning] while an agent manages the node.
func (m *Manager) Install(ctx context.Context) ([]Step, error) {
	if err := m.remember(); err != nil {
		return nil, err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return m.settled(ctx, true)
}

// Plan returns the steps that [Manager.Install] would take. It writes nothing.
func (m *Manager) Plan(ctx context.Context) ([]Step, error) {
	if err := m.remember(); err != nil {
		return nil, err
	}
	if !m.busy.TryLock() {
		return nil, ErrRunning
	}
	defer m.busy.Unlock()
	return m.settled(ctx, false)
}

// settled passes over the node until it is settled what to do.
func (m *Manager) settled(ctx context.Context, act bool) ([]Step, error) {
	for {
		p, err := m.pass(ctx, act, m.installable)
		if err != nil || p.wait == 0 {
			return p.steps, err
		}
		if err := sleep(ctx, p.wait); err != nil {
			return nil, err
		}
	}
}

// remember takes up what the operator said at an earlier installation.
func (m *Manager) remember() error {
	r, err := m.loadRecord()
	if err != nil {
		return err
	}
	m.defaults = merge(r.Defaults, m.config.Defaults)
	if m.runtime == "" {
		m.runtime = r.Runtime
	}
	return nil
}

// merge returns the settings before with those of now over them; "" takes one back.
func merge(before, now map[string]any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, before)
	maps.Copy(out, now)
	maps.DeleteFunc(out, func(_ string, value any) bool { return value == "" })
	return out
}

// installable says why podweir cannot be installed once and for all, although an
// agent would wait for better times.
func (m *Manager) installable(p *pass) error {
	switch {
	case p.wait > 0:
		return nil
	case p.choice.Delivery.ByAgent():
		return p.view.obstacle
	case p.view.conf.Network() != nil:
		return nil
	}
	if f := p.view.conf.Original(); f != nil {
		return fmt.Errorf("the network in %s: %w", m.hostPath(p.view.confDir), f.Err)
	}
	return unusable("find a network in", m.hostPath(p.view.confDir), errors.New(p.view.why()), "the conflist of the primary CNI; podweir joins its chain")
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// hostPath is where a path below the node's root is in our own file system, for
// messages.
func (m *Manager) hostPath(name string) string { return filepath.Join(m.config.Root, name) }
