// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/podweir/podweir/compat/conflist"
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

func equal(a, b *Decision) bool { return reflect.DeepEqual(a, b) }

// pass looks at the node, decides, and takes the steps that are missing if act
// is set and check, which may be nil, has nothing against it. The decision that
// results is told in any case.
func (m *Manager) pass(ctx context.Context, act bool, check func(*pass) error) (*pass, error) {
	v, err := m.look(ctx)
	p := &pass{view: v}
	if err == nil {
		p.choice, err = m.choice(v)
	}
	if err == nil {
		b := beside{profile: v.node.Profile, others: v.node.OtherShapers()}
		p.entry, p.notes, err = b.entry(m.config.Defaults)
		p.choice.Warning = join(p.choice.Warning, b.dispute(m.config.Defaults))
	}
	if err == nil {
		err = m.plan(p)
	}
	if err == nil && check != nil {
		err = check(p)
	}
	if err == nil && act {
		err = m.apply(p)
	}
	if p.upkeep == profiles.NRI && errors.Is(err, ErrInUse) {
		// It goes when the others have let go of it.
		if time.Since(m.needed) >= redetect {
			m.needed, m.neededBy = time.Now(), err
		}
		p.choice.Warning, err = join(p.choice.Warning, err.Error()), nil
	}
	if err != nil && act {
		err = errors.Join(err, m.rescue(p))
	}
	if act {
		err = errors.Join(err, m.tell(p))
	}
	m.publish(m.decided(p, err), check == nil)
	return p, err
}

// join puts two sentences into one, of which either may be "".
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// decided makes a decision of a pass.
func (m *Manager) decided(p *pass, err error) Decision {
	v := p.view
	d := Decision{
		Asked: m.config.Delivery, Choice: p.choice, Runtime: v.node.Runtime.String(),
		ConfDir: v.confDir, BinDir: v.binDir, Entry: string(p.entry), Notes: p.notes, InForce: v.inForce(),
	}
	if v.node.Profile != nil {
		d.Profile = v.node.Profile.Name
	}
	if err != nil {
		d.Problem = err.Error()
	}
	if len(p.steps) > 0 {
		after := *v
		if conf, err := conflist.ReadDir(m.root, v.node.ConfDir); err == nil {
			after.conf = conf
			d.InForce = after.inForce()
		}
	}
	return d
}

// apply takes the steps. If the first one fails everything is as it was.
func (m *Manager) apply(p *pass) error {
	if len(p.steps) == 0 {
		return nil
	}
	if p.upkeep == profiles.NRI {
		return m.removeFiles(p.view, "the delivery is "+string(profiles.NRI))
	}
	r, err := m.loadRecord()
	if err != nil {
		p.steps = nil
		return err
	}
	known := slices.Clone(r.Items)
	r.Runtime = m.config.Runtime
	for i := range p.steps {
		if err := m.take(r, &p.steps[i]); err != nil {
			p.steps = p.steps[:i]
			if i == 0 {
				err = errors.Join(err, r.undo(known))
			}
			return err
		}
		m.log.Info("files of podweir", "do", p.steps[i].Do, "path", p.steps[i].Path, "why", p.steps[i].Why)
	}
	return nil
}

func (m *Manager) loadRecord() (*record, error) {
	return loadRecord(m.config.Root, m.real(m.config.State))
}

// take takes one step.
func (m *Manager) take(r *record, s *Step) error {
	if s.binary {
		return m.placeBinary(r, s)
	}
	if s.Do == doRemove {
		if err := r.claim(s.Path, "", s.ours); err != nil {
			return err
		}
		return remove(s.Path)
	}
	if err := r.makeDir(filepath.Dir(s.Path)); err != nil {
		return err
	}
	if err := r.claim(s.Path, "", s.ours); err != nil {
		return err
	}
	// A conflist may hold secrets, and only root has to read it.
	return replace(s.Path, 0o600, write(s.content))
}

func (m *Manager) placeBinary(r *record, s *Step) error {
	if err := r.claim(s.Path, m.source.hash, false); err != nil {
		return err
	}
	if err := replace(s.Path, 0o755, copyFrom(m.config.Binary)); err != nil {
		return err
	}
	m.placed = stampOf(s.Path)
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
