// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/profiles"
)

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// cause is the innermost error.
func cause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// pass looks at the node, decides, and takes the steps that are missing if act
// is set and check, which may be nil, has nothing against it. With a check, which is
// that of an installation, nothing is done before it is settled what to do. The
// decision that results is told in any case.
func (m *Manager) pass(ctx context.Context, act bool, check func(*pass) error) (*pass, error) {
	v, err := m.look(ctx)
	p := &pass{view: v}
	if err == nil {
		err = m.decide(p)
	}
	if err == nil && check != nil {
		err = check(p)
		act = act && p.wait == 0
	}
	if err == nil && act {
		err = m.apply(ctx, p)
	}
	if p.upkeep.ByAgent() && errors.Is(err, ErrInUse) {
		// It goes when the others have let go of it.
		if time.Since(m.needed) >= redetect {
			m.needed, m.neededBy = time.Now(), err
		}
		p.choice.Warning = join(p.choice.Warning, err.Error())
		if err = m.planUsed(p); err == nil && act {
			err = m.takeSteps(ctx, p)
		}
	}
	if err != nil && act && check == nil {
		err = errors.Join(err, m.rescue(p))
	}
	if act {
		err = errors.Join(err, m.tell(p))
	}
	m.publish(m.decided(p, err), check == nil)
	return p, err
}

// decide fills in what follows from the look.
func (m *Manager) decide(p *pass) error {
	choice, err := m.choice(p.view)
	if err != nil {
		return err
	}
	p.choice = choice
	b := beside{profile: p.view.node.Profile, runtimes: p.view.node.Runtimes(), others: p.view.node.OtherShapers()}
	if p.entry, p.notes, err = b.entry(m.defaults); err != nil {
		return err
	}
	p.network = m.Decision().Network
	if n := p.view.conf.Network(); n != nil {
		p.network = n.Name
	} else if f := m.found(p.view); p.view.node.Profile == nil && f.delivery != "" {
		// Whoever was there when podweir's files were written these alone can tell.
		p.network, p.entry = f.network, f.entry
	}
	p.choice.Warning = join(p.choice.Warning, b.dispute(m.defaults))
	p.compareHanded()
	p.warnRepeated()
	if err := m.plan(p); err != nil {
		return err
	}
	if p.view.conf.Network() != nil && !p.held {
		m.chosen = choice
	}
	return nil
}

// join puts two sentences into one, of which either may be "".
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// decided makes a decision of a pass. While what is wanted has not stood for long
// enough the one before holds.
func (m *Manager) decided(p *pass, err error) Decision {
	v := p.view
	d := Decision{
		Asked: m.config.Delivery, Choice: p.choice, Runtime: v.node.Runtime.String(), Defaults: m.defaults,
		ConfDir: v.confDir, BinDir: v.binDir, Network: p.network, Entry: string(p.entry), Notes: p.notes, InForce: v.inForce(),
	}
	before := m.Decision()
	if v.node.Profile != nil {
		d.Profile = v.node.Profile.Name
	}
	if p.held && before.Delivery != "" {
		d.Choice, d.Profile, d.Network, d.Entry, d.Notes = before.Choice, before.Profile, before.Network, before.Entry, before.Notes
	}
	after := *v
	if len(p.steps) > 0 {
		if conf, err := v.node.ReadConf(m.root); err == nil {
			after.conf = conf
			d.InForce = after.inForce()
		}
	}
	d.Fight = m.fights.on
	switch {
	case err != nil:
		d.Problem = err.Error()
	case d.Fight != nil:
		// It was written once more; whether it stays is not known yet.
		d.Problem = problem(d.Fight)
	case !p.held && p.wait == 0 && (p.upkeep == profiles.Chain || p.upkeep == profiles.DropIn) && !d.InForce:
		d.Problem = "podweir is not in the chain in force: " + after.why()
	}
	return d
}

// apply takes the steps. Where one fails those before it stay: each leaves a chain that
// works, and the next pass, or installation, goes on from there.
func (m *Manager) apply(ctx context.Context, p *pass) error {
	if p.upkeep.ByAgent() {
		if len(p.steps) == 0 {
			return nil
		}
		return m.removeFiles(ctx, p.view, "the delivery is "+string(p.upkeep))
	}
	return m.takeSteps(ctx, p)
}

func (m *Manager) takeSteps(ctx context.Context, p *pass) error {
	if len(p.steps) == 0 && m.noted {
		return nil
	}
	r, err := m.loadRecord()
	if err != nil {
		p.steps = nil
		return err
	}
	taken, err := m.takeAll(ctx, r, p.steps)
	p.steps = p.steps[:taken]
	m.fights.took(p.steps)
	return err
}

// takeAll takes the steps one after the other, notes the settings that they follow
// from, and returns how many were taken. Between what podweir writes and what it
// removes there is a pause: a runtime that listed the directory before the one must
// have read it before the other.
func (m *Manager) takeAll(ctx context.Context, r *record, steps []Step) (taken int, err error) {
	for i := range steps {
		if info, err := os.Lstat(steps[i].Path); err == nil && info.IsDir() {
			return 0, fileError("write", steps[i].Path, unix.EISDIR)
		}
	}
	changed := r.set(m.runtime, m.defaults) || r.Fight != nil && m.fights.on == nil
	r.Fight = m.fights.on
	written := false
	for i := range steps {
		if steps[i].Do == doRemove && written {
			if err := sleep(ctx, settle); err != nil {
				return i, err
			}
			written = false
		}
		if err := m.take(r, &steps[i]); err != nil {
			return i, err
		}
		written = written || steps[i].Do == doWrite && !steps[i].binary
		m.log.Info("files of podweir changed", "do", steps[i].Do, "path", steps[i].Path, "why", steps[i].Why)
	}
	if changed && len(r.Items) > 0 {
		err = r.save()
	}
	m.noted = err == nil
	return len(steps), err
}

func (m *Manager) loadRecord() (*record, error) {
	return loadRecord(m.config.Root, m.real(StateDir))
}

func (m *Manager) take(r *record, s *Step) error {
	if s.binary {
		return m.placeBinary(r, s)
	}
	if s.Do == doRemove {
		return remove(s.Path)
	}
	if err := r.makeDir(filepath.Dir(s.Path)); err != nil {
		return err
	}
	if err := r.claim(s.Path, ""); err != nil {
		return err
	}
	// A conflist may hold secrets, and only root has to read it.
	return replace(s.Path, 0o600, bytes.NewReader(s.content))
}

func (m *Manager) placeBinary(r *record, s *Step) error {
	if err := r.claim(s.Path, m.source.hash); err != nil {
		return err
	}
	from, err := os.Open(m.config.Binary)
	if err != nil {
		return fileError("read", m.config.Binary, err)
	}
	defer func() { _ = from.Close() }()
	if err := replace(s.Path, 0o755, from); err != nil {
		return err
	}
	m.placed[s.Path] = stampOf(s.Path)
	return nil
}

// rescue takes podweir out of the chain if its binary is missing and could not be
// put there: a chain with a plugin that cannot be run fails every pod.
func (m *Manager) rescue(p *pass) error {
	v := p.view
	if v.conf == nil || v.binDir == "" {
		return nil
	}
	if _, err := os.Lstat(m.binaryPath(v)); !isMissing(err) || m.placedBefore() {
		return nil
	}
	out := pass{view: v, choice: p.choice, upkeep: p.upkeep}
	m.planLeftovers(&out, "")
	var all error
	for _, s := range out.steps {
		all = errors.Join(all, remove(s.Path))
		m.log.Error("podweir is taken out of the chain: its binary is missing", "path", s.Path)
	}
	p.steps = append(p.steps, out.steps...)
	return all
}

// placedBefore says whether a binary that podweir put somewhere else is there: the
// chain names no path, and the runtime looks where it did.
func (m *Manager) placedBefore() bool {
	r, err := m.loadRecord()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(r.Items, func(i *item) bool {
		_, err := os.Lstat(r.at(i))
		return len(i.SHA256) > 0 && err == nil
	})
}
