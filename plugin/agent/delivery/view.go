// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/mailbox"
)

// redetect is how often the whole node is looked at again: who runs, and with
// which settings. It costs up to 100 ms on a node with 110 pods. What is in the
// directory of conflists is looked at much more often.
const redetect = time.Minute

// After an agent of the primary CNI started, the node is looked at this often for
// as long as redetect: the agent takes some time until it says with which settings.
const redetectSoon = 3 * time.Second

// view is the node as one pass sees it.
type view struct {
	node *detect.Node
	// conf is nil if there is no directory of conflists.
	conf *conflist.Dir
	// confDir and binDir are below the node's root.
	confDir, binDir string
	situation       conflist.Situation
	// handed is podweir's entry for a chain that the primary CNI writes itself.
	handed string
	// obstacle says why the directories cannot be written, nil if they can.
	obstacle error
	// binaryDir is the error of the directory of plugins, nil if it is there.
	binaryDir error
}

// look reads the directory of conflists, and the whole node if something changed
// that may change the decision.
func (m *Manager) look(ctx context.Context) (*view, error) {
	if m.node == nil {
		m.detect(ctx, nil)
	}
	conf, err := m.node.ReadConf(m.root)
	if m.outdated(conf, err) && m.detect(ctx, conf) {
		if conf = m.node.Conf; conf != nil {
			err = nil
		}
		m.fingerprint = fingerprint(conf, err)
	}
	v := &view{node: m.node, conf: conf, confDir: "/" + m.node.ConfDir}
	if err != nil && !isMissing(err) {
		return v, fileError("list", m.hostPath(v.confDir), err)
	}
	v.binDir, v.binaryDir = m.pluginDir(v)
	v.handed = HandedEntry(v.node, m.defaults)
	v.situation = m.situation(v)
	return v, nil
}

// outdated says whether the whole node is to be looked at again. A network that
// was there and cannot be read is no reason: it may be half written.
func (m *Manager) outdated(conf *conflist.Dir, err error) bool {
	torn := m.node.Conf.Network() != nil && conf.Network() == nil
	every := redetect
	if m.startedSince(redetect) {
		every = redetectSoon
	}
	return !torn && fingerprint(conf, err) != m.fingerprint || time.Since(m.detected) > every
}

// startedSince says whether an agent of the primary CNI started within the last
// span, or was first seen then, and remembers what it goes by.
func (m *Manager) startedSince(span time.Duration) bool {
	traces := make([]stamp, len(detect.StartTraces))
	for i, name := range detect.StartTraces {
		traces[i] = stampOf(m.real("/" + name))
	}
	if !slices.Equal(traces, m.traces) {
		m.traces = traces
		if slices.ContainsFunc(traces, func(s stamp) bool { return s != stamp{} }) {
			m.started = time.Now()
		}
	}
	return time.Since(m.started) <= span
}

// detect looks at the whole node; conf is what was read of the directory of
// conflists, nil if nothing was. It is false if the node stays what it was found to
// be, because the network that podweir joined cannot be read now: without it this
// would be another node, and podweir would leave the chain.
func (m *Manager) detect(ctx context.Context, conf *conflist.Dir) bool {
	before := m.node
	o := detect.Options{
		ConfDir: m.config.ConfDir, BinDir: m.config.BinDir, Runtime: m.config.Runtime, ToldRuntime: m.runtime, Conf: conf, Live: m.config.Live,
	}
	if before != nil {
		o.Before = &before.Cilium
	}
	node := detect.Read(ctx, m.root, o)
	m.detected = time.Now()
	if before != nil && before.Conf.Network() != nil && node.Conf.Network() == nil {
		return false
	}
	m.node = node
	m.keepSaid(&node.Cilium)
	for _, p := range m.node.Problems {
		m.log.Debug("part of the node not read", "problem", p)
	}
	return true
}

// keepSaid keeps what Cilium's agent says for the agent that comes after this one: it may start
// while Cilium's is away, and would take the node for one with other routing.
func (m *Manager) keepSaid(c *detect.Cilium) {
	if m.config.Run == "" || !c.API || m.said != nil && reflect.DeepEqual(m.said, c) {
		return
	}
	if err := mailbox.Write(filepath.Join(m.config.Run, path.Base(detect.CiliumSaid)), c); err != nil {
		m.log.Warn("answers of Cilium's agent not kept", "err", err)
		return
	}
	m.said = c
}

// fingerprint changes when the decision may: with the chain that podweir joins,
// and when another party renames podweir's file.
func fingerprint(conf *conflist.Dir, err error) string {
	if conf == nil {
		return fmt.Sprint(err)
	}
	var b strings.Builder
	if o := conf.Original(); o != nil && o.Network != nil {
		fmt.Fprintf(&b, "%s %s %v %v %v", o.Name, o.Network.Name, o.Network.OnlyInlined, o.Network.Versions, o.Network.Types())
	} else {
		b.WriteString("no network")
	}
	return b.String() + " " + strings.Join(conf.Renamed(), " ")
}

// inForce says whether the chain that the runtime uses has podweir in it.
func (v *view) inForce() bool {
	return v.conf != nil && v.unloadable() == nil && slices.Contains(v.conf.Effective(v.readsDropIns()), conflist.Type)
}

func (v *view) readsDropIns() bool { return v.node.Runtime.ReadsDropIns() != profiles.No }

// unloadable is what is wrong with drop-ins for which the runtime loads no network, nil if it loads one.
func (v *view) unloadable() error {
	if !v.readsDropIns() {
		return nil
	}
	return errors.Join(v.conf.BrokenDropIns()...)
}

// why says what is in force in the place of podweir.
func (v *view) why() string {
	switch {
	case v.conf == nil:
		return v.confDir + " is not there yet"
	case v.conf.Active() == nil:
		return v.conf.None()
	}
	f := v.conf.Active()
	if f.Err != nil {
		return "the runtime takes " + f.Err.Error()
	}
	if err := v.unloadable(); err != nil {
		return "the runtime loads no network for a drop-in that it cannot load: repair or remove " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return "the runtime takes " + f.Name + ", with the chain " + strings.Join(v.conf.Effective(v.readsDropIns()), ", ")
}

// pluginDir finds the directory of plugins that the runtime uses: where the
// primary CNI's own plugin is, else the first that is there.
func (m *Manager) pluginDir(v *view) (string, error) {
	dirs := v.node.BinDirs
	if n := v.conf.Network(); n != nil && len(n.Plugins) > 0 {
		if found := v.node.Binary(m.root, n.Plugins[0].Type); found != "" {
			dirs = []string{path.Dir(found)}
		}
	}
	for _, dir := range dirs {
		info, err := fs.Stat(m.root, dir)
		if err == nil && info.IsDir() {
			return "/" + dir, nil
		}
	}
	return "/" + dirs[0], unusable("look at", m.hostPath(dirs[0]), fs.ErrNotExist,
		"the directory of plugins that the container runtime is configured with (--cni-bin-dir)")
}

func (m *Manager) situation(v *view) conflist.Situation {
	s := v.node.Situation()
	s.Original = v.conf.Network() // as it is now
	if v.handed != "" {
		s.Profile = s.Profile.WithEntry(v.handed)
	}
	dirs := []string{m.real(v.confDir), m.real(v.binDir)}
	for _, dir := range dirs {
		err := unwritable(dir)
		switch {
		case err == nil:
		case isMissing(err):
			continue
		default:
			s.Writable, s.Obstacle, v.obstacle = profiles.No, err.Error(), fileError("write to", dir, cause(err))
			return s
		}
		s.Writable = profiles.Yes
	}
	return s
}

// real is where a path of the node is in our own file system, links resolved
// as far as it is there.
func (m *Manager) real(name string) string {
	full, err := detect.Resolve(m.config.Root, name)
	if err == nil {
		return full
	}
	if name == "/" || name == "." || name == "" {
		return m.config.Root
	}
	return filepath.Join(m.real(path.Dir(name)), path.Base(name))
}
