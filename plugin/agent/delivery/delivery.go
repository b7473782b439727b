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
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
)

// Auto lets podweir choose the delivery.
const Auto profiles.Delivery = "auto"

// Deliveries are all that can be asked for.
var Deliveries = []profiles.Delivery{Auto, profiles.Chain, profiles.DropIn, profiles.Handed, profiles.NRI}

// DefaultState is the directory that holds the record of what was installed,
// below the node's root.
const DefaultState = "/var/lib/podweir"

// Config says what to install where. Paths other than Root and Binary are below
// Root.
type Config struct {
	// Root is where the node's root directory is in our own file system, "/" by
	// default.
	Root string
	// ConfDir is the directory of conflists and BinDir that of plugins; they are
	// looked for if empty.
	ConfDir, BinDir string
	// State is the directory of the record, [DefaultState] by default.
	State string
	// Binary is the podweir-cni that is installed, in our own file system: by
	// default the one beside the running program.
	Binary string
	// Runtime is what the node's status says, as "containerd://2.1.3"; it is
	// looked for if empty.
	Runtime string
	// Delivery is what the operator asks for, [Auto] if empty.
	Delivery profiles.Delivery
	// Defaults are keys of the plugin's configuration with values for all pods of
	// the node, as docs/reference/configuration.md lists them.
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
	// Entry is podweir's entry in the chain.
	Entry string `json:"entry,omitempty"`
	// Notes are what else to know of the entry.
	Notes []string `json:"notes,omitempty"`
	// InForce says whether the chain that the runtime uses now has podweir in it.
	InForce bool `json:"inForce"`
	// Problem says what stands against it, "" if nothing does.
	Problem string `json:"problem,omitempty"`
}

// Manager installs podweir on one node. Its methods may be called from any
// goroutine.
type Manager struct {
	config Config
	log    *slog.Logger
	root   fs.FS

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
	// chosen is the last choice that was made with a network to join.
	chosen conflist.Choice
	// gone is since when the original has been missing or broken, and goneAs what
	// the files of others were then.
	gone   time.Time
	goneAs string
	source source
	placed stamp
	// told is whether the runtime was made to look for drop-ins at all, untold
	// whether one changed since.
	told, untold bool
	// needed is when the binary was last found to be needed by others, although the
	// delivery leaves no files, neededBy by whom.
	needed   time.Time
	neededBy error
}

// New checks the configuration; it touches no file. An error is of type
// [*SettingError].
func New(config Config) (*Manager, error) {
	if config.Root == "" {
		config.Root = "/"
	}
	if config.State == "" {
		config.State = DefaultState
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
		config: config, log: config.Log, root: detect.HostRoot(config.Root),
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
	same := equal(&m.decision, &d)
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
		m.log.Info("delivery", attrs...)
		return
	}
	m.log.Error("delivery", append(attrs, "problem", d.Problem)...)
}

// Install brings the node's files to what is decided, once, and returns the
// steps that it took. It fails with [ErrRunning] while an agent manages the node,
// and with an error that wraps [*FileError] where something cannot be written;
// then everything is as it was.
func (m *Manager) Install(ctx context.Context) ([]Step, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var taken []Step
	for {
		p, err := m.pass(ctx, true, m.installable)
		if err != nil {
			return taken, err
		}
		taken = append(taken, p.steps...)
		if p.wait == 0 {
			return taken, nil
		}
		if err := sleep(ctx, p.wait); err != nil {
			return taken, err
		}
	}
}

// Plan returns the steps that [Manager.Install] would take. It writes nothing.
func (m *Manager) Plan(ctx context.Context) ([]Step, error) {
	if !m.busy.TryLock() {
		return nil, ErrRunning
	}
	defer m.busy.Unlock()
	p, err := m.pass(ctx, false, m.installable)
	return p.steps, err
}

// installable says why podweir cannot be installed once and for all, although an
// agent would wait for better times.
func (m *Manager) installable(p *pass) error {
	if p.choice.Delivery == profiles.NRI && p.view.obstacle != nil {
		return p.view.obstacle
	}
	if p.wait > 0 || p.view.original() != nil || p.choice.Delivery == profiles.NRI {
		return nil
	}
	if f := p.view.originalFile(); f != nil {
		return fmt.Errorf("the network in %s: %w", m.hostPath(p.view.confDir), f.Err)
	}
	return &FileError{
		Op: "find a network in", Path: m.hostPath(p.view.confDir), Err: errNoNetwork,
		Want: "the conflist of the primary CNI; podweir joins its chain",
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// hostPath is where a path below the node's root is in our own file system, for
// messages.
func (m *Manager) hostPath(name string) string { return filepath.Join(m.config.Root, name) }
