// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
)

const (
	// maxRewrites is how often podweir writes a file again within fightSpan that another
	// program undid. Then it stops: pods would start now with the one's plugin and now with
	// the other's.
	maxRewrites = 3
	fightSpan   = time.Minute
	// fightRest is after what time podweir writes such a file once more: the other program
	// may be gone.
	fightRest = 10 * time.Minute
)

// problem returns the text which says that podweir stopped writing the file.
func problem(f *conflist.Fight) string {
	return fmt.Sprintf("another program changes %s back whenever podweir writes it: it %s. podweir wrote it %d times in a minute and stopped at %s; "+
		"it tries once more every %v. Find the program that writes there, or take another delivery",
		f.File, f.Change, maxRewrites+1, f.Since.UTC().Format(time.RFC3339), fightRest)
}

// fight is what the manager remembers of whoever undoes what it writes.
type fight struct {
	// wrote is what podweir last wrote, by path in our own file system.
	wrote map[string][]byte
	// rewrites are when podweir wrote again what another party had undone.
	rewrites []time.Time
	// on is the fight that podweir has stopped, nil without one; about is what was wanted
	// then, and until the time before which it is not tried again.
	on    *conflist.Fight
	about string
	until time.Time
}

// peace returns an error if the steps of a pass would go on with a fight.
func (m *Manager) peace(p *pass) error {
	f, now := &m.fights, time.Now()
	f.rewrites = slices.DeleteFunc(f.rewrites, func(t time.Time) bool { return now.Sub(t) > fightSpan })
	var s *Step
	change := ""
	for i := range p.steps {
		if what := f.undone(&p.steps[i]); what != "" {
			s, change = &p.steps[i], what
		}
	}
	if s == nil {
		if f.on != nil && len(f.rewrites) == 0 {
			f.on = nil
			m.note(nil)
			m.log.Info("fight over a file ended")
		}
		return nil
	}
	about := fmt.Sprint(p.choice.Delivery, string(p.entry), s.Path)
	if original := p.view.conf.Original(); original != nil {
		about += conflist.Hash(original.Raw)
	}
	switch {
	case f.on != nil && (about != f.about || !now.Before(f.until)):
		// Another situation, or the other program had time to go: once more.
		f.about, f.until = about, now.Add(fightRest)
		return nil
	case f.on == nil && len(f.rewrites) < maxRewrites:
		return nil
	case f.on == nil:
		f.on, f.about, f.until = &conflist.Fight{File: m.onNode(s.Path), Change: change, Since: now}, about, now.Add(fightRest)
		m.note(f.on)
	}
	p.steps = nil
	return errors.New(problem(f.on))
}

func (f *fight) took(steps []Step) {
	for i := range steps {
		s := &steps[i]
		switch {
		case s.binary:
		case s.Do == doRemove:
			delete(f.wrote, s.Path)
		default:
			if s.undone {
				f.rewrites = append(f.rewrites, time.Now())
			}
			if f.wrote == nil {
				f.wrote = map[string][]byte{}
			}
			f.wrote[s.Path] = s.content
		}
	}
}

// undone says what became of what podweir last wrote where a step wants to write, "" if it
// is still there. What others added is no harm.
func (f *fight) undone(s *Step) (change string) {
	before, known := f.wrote[s.Path]
	if s.binary || s.Do != doWrite || !known {
		return ""
	}
	change = lost(s.Path, before)
	s.undone = change != ""
	return change
}

// lost says what of a file's former content is not there any more.
func lost(path string, before []byte) string {
	raw, err := os.ReadFile(path)
	switch {
	case isMissing(err):
		return "removes or renames it"
	case err != nil:
		return "makes it unreadable (" + cause(err).Error() + ")"
	case isDropIn(path):
		if conflist.SameEntry(raw, before) {
			return ""
		}
		return "replaces its content"
	}
	now, err := conflist.Parse(path, raw)
	if err != nil {
		return "leaves it broken: " + err.Error()
	}
	was, err := conflist.Parse(path, before)
	if err != nil {
		return "" // podweir wrote it: it cannot be
	}
	if gone := was.Without(now); len(gone) > 0 {
		return "takes out or changes " + strings.Join(gone, ", ") + ", so that its chain is " + strings.Join(now.Types(), ", ")
	}
	return ""
}

// note keeps a fight in the record, where the doctor finds it; nil ends it.
func (m *Manager) note(f *conflist.Fight) {
	r, err := m.loadRecord()
	if err == nil && len(r.Items) > 0 {
		r.Fight = f
		err = r.save()
	}
	if err != nil {
		m.log.Warn("fight not noted for the doctor", "error", err)
	}
}

// onNode is where a path of our own file system is on the node.
func (m *Manager) onNode(path string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(path, m.real("/")), "/")
}
