// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

// Step is one change to a file of the node.
type Step struct {
	// Do is write or remove, Path where, in our own file system, and Why the
	// reason.
	Do   string `json:"do"`
	Path string `json:"path"`
	Why  string `json:"why"`

	content []byte
	// binary says that the content is the plugin's binary.
	binary bool
	// undone says that another program undid what podweir had written there.
	undone bool
}

// The kinds of step.
const (
	doWrite  = "write"
	doRemove = "remove"
)

func (s *Step) String() string { return s.Do + " " + s.Path + ": " + s.Why }

// settle is how long another decision has to stand, with nobody writing in the
// directory of conflists, before anything of podweir's is removed or moved. Not
// everybody writes by renaming: in between a file is missing, broken, or behind
// another one that is not meant to be first.
const settle = time.Second

// pass is one look at the node with what follows from it.
type pass struct {
	view   *view
	choice conflist.Choice
	// upkeep is the delivery whose files are kept in order: that of the choice, or
	// the former one until the choice has taken over.
	upkeep profiles.Delivery
	// network is the name of the one that podweir joins, as far as that is known.
	network string
	entry   []byte
	notes   []string
	steps   []Step
	// wait is after what time to look again although nothing happened; 0 if that
	// is not needed.
	wait time.Duration
	// held says that what podweir has on the node is not what the choice wants, and
	// stays until the choice has stood for a while.
	held bool
}

// plan lists the steps that are missing: first what is to be there, last what is
// not, so that podweir is in the chain all the while.
func (m *Manager) plan(p *pass) error {
	m.chooseUpkeep(p)
	stays, goes := m.standing(p)
	p.wait = m.unsettled(p, goes)
	if p.held = p.wait > 0 && !stays; p.held {
		if p.upkeep.ByAgent() {
			return nil
		}
		return m.planBinary(p)
	}
	if p.upkeep.ByAgent() {
		return m.planNothing(p)
	}
	if err := m.planBinary(p); err != nil {
		return err
	}
	if p.view.conf == nil {
		return nil
	}
	var err error
	keep := ""
	switch p.upkeep {
	case profiles.Chain:
		keep, err = m.planChain(p, p.view.conf.Original(), p.entry)
	case profiles.DropIn:
		keep, err = m.planDropIn(p)
	default:
	}
	if err != nil {
		return err
	}
	if p.wait == 0 {
		m.planLeftovers(p, keep)
	}
	return m.peace(p)
}

// standing says of the files that podweir has made whether one is where this pass
// wants it, and whether another one is to go. A drop-in of a network that cannot
// be read now does nothing, and is right again when the network is back.
func (m *Manager) standing(p *pass) (stays, goes bool) {
	source, network := "", ""
	if n := p.view.conf.Network(); n != nil && n.Index(conflist.Type) < 0 {
		source, network = n.File, n.Name
	}
	for _, f := range p.view.conf.Own() {
		if f.Network == nil {
			continue // it is in nobody's chain
		}
		right := p.upkeep == profiles.Chain && source != "" && madeFor(&f, source)
		stays, goes = stays || right, goes || !right
	}
	for _, dir := range m.dropIns(p.view) {
		if p.view.conf.Network() == nil && !p.upkeep.ByAgent() {
			continue
		}
		right := p.upkeep == profiles.DropIn && dir == network
		stays, goes = stays || right, goes || !right
	}
	return stays, goes
}

// patience is for how long a directory in which another party writes again and again is left to
// come to rest. Afterwards only what is in the files counts: an installer that rewrites its
// file for ever, always with the same content, must not keep podweir where it is.
const patience = 5 * settle

// unsettled is how long to wait until something may go: for as long as what is
// wanted changes, or another party writes in the directory, nothing is decided. A file
// that is removed and written again and again may never be seen whole.
func (m *Manager) unsettled(p *pass, goes bool) time.Duration {
	if !goes {
		m.unlike, m.restless = time.Time{}, time.Time{}
		return 0
	}
	if m.restless.IsZero() {
		m.restless = time.Now()
	}
	patient := time.Since(m.restless) < patience
	var wanted strings.Builder
	fmt.Fprintln(&wanted, p.upkeep)
	if patient {
		fmt.Fprintln(&wanted, stampOf(m.real(p.view.confDir)))
	}
	for _, f := range p.view.conf.Files {
		switch {
		case f.Ours():
		case patient:
			fmt.Fprintln(&wanted, f.Name, stampOf(filepath.Join(m.real(p.view.confDir), f.Name)))
		default:
			fmt.Fprintln(&wanted, f.Name, conflist.Hash(f.Raw), f.Err)
		}
	}
	if now := wanted.String(); m.unlike.IsZero() || now != m.unlikeAs {
		m.unlike, m.unlikeAs = time.Now(), now
	}
	return max(0, settle-time.Since(m.unlike))
}

// chooseUpkeep says which files are to be there. Two deliveries are carried out by
// others: by the runtime that calls the agent, and by the primary CNI that writes
// podweir into its chain. Until they do, the files of the former delivery stay and
// are kept in order: pods that start in between are limited. Where each pod gets a second network
// by them they go at once, if an agent limits the pods in between.
func (m *Manager) chooseUpkeep(p *pass) {
	p.upkeep = p.choice.Delivery
	until := ""
	switch p.choice.Delivery {
	case profiles.NRI:
		if m.config.Hooked != nil && !m.config.Hooked() && p.view.obstacle == nil {
			until = "the runtime calls the agent"
		}
	case profiles.Handed:
		if n := p.view.conf.Network(); n != nil && n.Index(conflist.Type) < 0 {
			until = n.File + " has podweir in it"
		}
	default:
	}
	// A file in a chain that podweir-cni cannot be called in is worse than none.
	if until == "" || p.view.conf == nil || p.view.conf.Network().Refused() != "" {
		return
	}
	former := profiles.DropIn
	if slices.ContainsFunc(p.view.conf.Own(), func(f conflist.File) bool { return machineMade(&f) }) {
		former = profiles.Chain
	} else if len(m.dropIns(p.view)) == 0 {
		return
	}
	switch _, vain := conflist.Objection(former, p.view.situation); {
	case vain && !p.view.inForce():
		return // they limit nobody, and others would make theirs of a new one
	case vain && p.view.situation.Several && m.config.Hooked != nil: // each pod gets a second network by them
		p.choice.Warning = join(p.choice.Warning, "the agent limits pods only once they run, until "+until)
		return
	}
	p.upkeep = former
	p.choice.Warning = join(p.choice.Warning, "the files of the delivery "+string(p.upkeep)+" stay until "+until)
}

// planNothing removes every file of podweir's: those of a former delivery.
func (m *Manager) planNothing(p *pass) error {
	r, err := m.loadRecord()
	if err != nil {
		return err
	}
	configurations, rest := m.planRemove(p.view, r, "podweir is removed")
	steps := append(configurations, rest...)
	if len(steps) == 0 {
		return nil
	}
	if err := m.heldBy(p.view, "podweir's goes by itself then"); err != nil {
		return err
	}
	if p.view.obstacle != nil {
		var left []string
		for _, s := range steps {
			left = append(left, s.Path)
		}
		// They do no harm: who attaches second leaves the limits of the first.
		return fmt.Errorf("files of a former delivery are left and cannot be removed (%s): %w; to let the agent remove them upgrade with the chart's value "+
			"cleanUp.formerDelivery=true, or run `podweir uninstall` on the node while no agent runs", strings.Join(left, ", "), cause(p.view.obstacle))
	}
	if time.Since(m.needed) < redetect {
		return m.neededBy
	}
	p.steps = steps
	return nil
}

// planUsed keeps in order what another party calls although the delivery is another one: the
// binary, and files of podweir's with the entry that they have.
func (m *Manager) planUsed(p *pass) error {
	p.steps = nil
	if err := m.planBinary(p); err != nil {
		return err
	}
	called := m.called(p.view)
	for _, own := range p.view.conf.Own() {
		if !slices.Contains(called, own.Name) || !machineMade(&own) {
			continue
		}
		at := own.Network.Index(conflist.Type)
		from := slices.IndexFunc(p.view.conf.Files, func(f conflist.File) bool { return f.Name == own.Network.Mark.Source && f.Network != nil })
		if at < 0 || from < 0 {
			continue
		}
		if _, err := m.planChain(p, &p.view.conf.Files[from], own.Network.Plugins[at].Raw); err != nil {
			return err
		}
	}
	return m.peace(p)
}

func (m *Manager) planBinary(p *pass) error {
	if p.view.binaryDir != nil {
		return p.view.binaryDir
	}
	at := m.binaryPath(p.view)
	from, all := m.config.Binary, []string{at}
	if from == besideOwn() && stampOf(from) == (stamp{}) && stampOf(at) != (stamp{}) {
		from = at // it was put there by hand, and none came with this program
	}
	if err := m.source.read(from); err != nil {
		return err
	}
	// One of before may be in a directory where the runtime looks first.
	if first := filepath.Dir("/" + p.view.node.Binary(m.root, conflist.Type)); first != "/" && from != at && m.real(first) != filepath.Dir(at) {
		all = append(all, filepath.Join(m.real(first), conflist.Type))
	}
	for _, at := range all {
		now, why := stampOf(at), "the plugin's binary is not there"
		if now != (stamp{}) {
			hash, err := m.source.hash, error(nil)
			if now != m.placed[at] {
				hash, err = hashFile(at)
			}
			if err != nil {
				return fileError("read", at, err)
			}
			if hash == m.source.hash && now.mode&0o111 == 0o111 {
				m.placed[at] = now
				continue
			}
			why = "another binary is there"
		}
		p.steps = append(p.steps, Step{Do: doWrite, Path: at, Why: why, binary: true})
	}
	return nil
}

func (m *Manager) binaryPath(v *view) string {
	return filepath.Join(m.real(v.binDir), conflist.Type)
}

// planChain returns the name of podweir's file in the directory of conflists.
func (m *Manager) planChain(p *pass, original *conflist.File, entry []byte) (keep string, err error) {
	installed := func(plugin string) bool { return p.view.node.Binary(m.root, plugin) != "" }
	standing := conflist.Standing{Delivery: profiles.Chain, Original: original, Entry: entry, Installed: installed}
	own := p.view.conf.Own()
	if original != nil {
		if keep, err = conflist.FileName(original.Name); err != nil {
			return "", err
		}
		if at := slices.IndexFunc(own, func(f conflist.File) bool { return f.Name == keep }); at >= 0 {
			standing.Own = &own[at]
		}
	}
	if standing.Own == nil && len(own) > 0 {
		standing.Own = &own[0]
	}
	action, why := conflist.Decide(standing)
	if action == conflist.Delete || action == conflist.Leave && standing.Own == nil {
		return "", nil // with the leftovers
	}
	here := standing.Own != nil && standing.Own.Name == keep
	if here && action == conflist.Leave {
		return keep, nil
	}
	var now *conflist.Network
	if standing.Own != nil {
		now = standing.Own.Network
	}
	content, err := conflist.Join(original.Network, entry, now, installed)
	if err != nil {
		return keep, err
	}
	p.steps = append(p.steps, Step{
		Do: doWrite, Path: filepath.Join(m.real(p.view.confDir), keep), Why: why, content: content,
	})
	return keep, nil
}

// madeFor says whether a file of podweir's was made for an original, by its mark or,
// if a person made it, by its name.
func madeFor(f *conflist.File, original string) bool {
	if machineMade(f) {
		return f.Network.Mark.Source == original
	}
	name, err := conflist.FileName(original)
	return err == nil && f.Name == name
}

// machineMade says that podweir wrote a file, and not a person by hand.
func machineMade(f *conflist.File) bool { return f.Network != nil && f.Network.Mark != nil }

// planDropIn returns the name of the directory that holds podweir's drop-in.
func (m *Manager) planDropIn(p *pass) (keep string, err error) {
	network := p.view.conf.Network()
	if network == nil || network.Index(conflist.Type) >= 0 {
		return "", nil
	}
	content, err := conflist.DropIn(p.entry)
	if err != nil {
		return "", err
	}
	at := filepath.Join(m.real(p.view.confDir), network.Name, conflist.DropInFile)
	there, err := os.ReadFile(at)
	switch {
	case err == nil && conflist.SameEntry(there, content):
		return network.Name, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fileError("read", at, err)
	}
	why := "podweir is not in the drop-in directory of the network " + network.Name
	if err == nil {
		why = "the drop-in is not as it should be"
	}
	p.steps = append(p.steps, Step{Do: doWrite, Path: at, Why: why, content: content})
	return network.Name, nil
}

// renamed lists files that podweir made and an exclusive Cilium renamed. In a chaining mode
// Cilium goes on making its own file of such a one, whatever becomes of the original
// (daemon/cmd/cni/config.go, v1.20.2).
func (m *Manager) renamed(v *view) []string {
	var out []string
	for _, name := range v.conf.Renamed() {
		was := strings.TrimSuffix(name, conflist.BackupSuffix)
		path := filepath.Join(m.real(v.confDir), name)
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if n, err := conflist.Parse(was, raw); err == nil && n.Mark != nil {
			out = append(out, path)
		}
	}
	return out
}

// dropIns lists the directories beside the conflists that have a drop-in of
// podweir's name.
func (m *Manager) dropIns(v *view) []string {
	dir := m.real(v.confDir)
	entries, _ := os.ReadDir(dir) // what cannot be listed has none that can be removed
	var found []string
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(dir, e.Name(), conflist.DropInFile)); err == nil {
			found = append(found, e.Name())
		}
	}
	return found
}

// planLeftovers removes podweir's files other than the one to keep: those of an
// earlier original, network or delivery.
func (m *Manager) planLeftovers(p *pass, keep string) {
	dir := m.real(p.view.confDir)
	why := "the delivery is " + string(p.choice.Delivery)
	called := m.called(p.view)
	for _, f := range p.view.conf.Own() {
		if f.Name == keep || slices.Contains(called, f.Name) {
			continue
		}
		reason := why
		if p.upkeep == profiles.Chain {
			_, reason = conflist.Decide(conflist.Standing{
				Delivery: profiles.Chain, Original: p.view.conf.Original(), Own: &f,
			})
			if keep != "" {
				reason = "podweir's file is " + keep
			}
		}
		if n := p.view.conf.Network(); n != nil && f.Network != nil && keep != "" && p.upkeep != profiles.Chain {
			if foreign := f.Network.Foreign(n); len(foreign) > 0 {
				reason += "; who put " + strings.Join(foreign, ", ") + " into it finds " + n.File + " in force now"
			}
		}
		p.steps = append(p.steps, Step{Do: doRemove, Path: filepath.Join(dir, f.Name), Why: reason})
	}
	for _, path := range m.renamed(p.view) {
		if p.upkeep != profiles.Chain {
			p.steps = append(p.steps, Step{Do: doRemove, Path: path, Why: why + ", and the primary CNI may make its own file of it"})
		}
	}
	for _, network := range m.dropIns(p.view) {
		if p.view.conf.Network() == nil || network == keep && p.upkeep == profiles.DropIn {
			continue
		}
		reason := why
		if n := p.view.conf.Network(); n != nil && p.upkeep == profiles.DropIn {
			reason = fmt.Sprintf("the network in force is %s", n.Name)
			if n.Index(conflist.Type) >= 0 {
				reason = n.File + " has podweir in it already"
			}
		}
		p.steps = append(p.steps, Step{Do: doRemove, Path: filepath.Join(dir, network, conflist.DropInFile), Why: reason})
	}
}
