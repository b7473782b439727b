// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// suffixes are those of the files that runtimes read
// (github.com/containerd/go-cni v1.1.13, loadFromConfDir; ocicni the same).
var suffixes = []string{".conf", ".conflist", ".json"}

// File is one network configuration in the directory.
type File struct {
	// Name is without the directory.
	Name string
	// Raw is what is in it, Network what that means. One of Network and Err is
	// nil.
	Raw     []byte
	Network *Network
	Err     error
}

// Ours says whether podweir made the file: by its name, since its content may be
// broken.
func (f *File) Ours() bool { return strings.HasPrefix(f.Name, Prefix) }

// DropInConf is a plugin in the drop-in directory of a network.
type DropInConf struct {
	Name string
	Type string
	Err  error
}

// Dir is the directory of network configurations as container runtimes see it.
type Dir struct {
	// Path is below the node's root, without a leading slash.
	Path string
	// Files are in the order of their names: runtimes use the first one that they accept.
	Files []File
	// DropIns are the plugins in the directory of each network of Files.
	DropIns map[string][]DropInConf
	// Backups are files that Cilium renamed.
	Backups []string

	network string
	crio    bool
	// installed says whether a plugin is in a directory of plugins; nil if nobody asks.
	installed func(plugin string) bool
}

// BackupSuffix is what an exclusive Cilium appends to the files of others
// (daemon/cmd/cni/config.go, v1.20.2).
const BackupSuffix = ".cilium_bak"

// ReadDir reads the directory. What is wrong with single files is in
// [File.Err]; the error is for the directory as a whole and wraps
// [fs.ErrNotExist] if there is none.
func ReadDir(root fs.FS, dir string) (*Dir, error) {
	d := &Dir{Path: dir, DropIns: map[string][]DropInConf{}}
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, fmt.Errorf("read directory of conflists: %w", err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), BackupSuffix) {
			d.Backups = append(d.Backups, e.Name())
		}
		// A directory is skipped by its entry: one behind a link is not.
		if e.IsDir() || !slices.Contains(suffixes, path.Ext(e.Name())) {
			continue
		}
		f := File{Name: e.Name()}
		if f.Raw, f.Err = ReadFile(root, path.Join(dir, e.Name())); f.Err == nil {
			f.Network, f.Err = Parse(e.Name(), f.Raw)
		}
		d.Files = append(d.Files, f)
		if n := f.Network; n != nil && n.takesDropIns() {
			if _, done := d.DropIns[n.Name]; !done {
				d.DropIns[n.Name] = readDropIns(root, path.Join(dir, n.Name))
			}
			first := func(c DropInConf) bool { return c.Name < DropInFile }
			n.begins = len(n.Plugins) == 0 && !slices.ContainsFunc(d.DropIns[n.Name], first)
		}
	}
	return d, nil
}

// ForCRIO says that CRI-O reads the directory. CRI-O skips broken files, and those with a plugin that
// is not installed (loadNetworks of github.com/cri-o/ocicni), where containerd stops at the first file.
// If network, its cni_default_network, is not "", CRI-O uses only that one.
func (d *Dir) ForCRIO(network string, installed func(plugin string) bool) {
	if d != nil {
		d.crio, d.network, d.installed = true, network, installed
	}
}

// lacks says that the runtime passes over a file for a plugin that is not installed.
func (d *Dir) lacks(f *File) bool {
	return d.installed != nil && f.Network != nil && slices.ContainsFunc(f.Network.Plugins, func(p Plugin) bool { return !d.installed(p.Type) })
}

// takes says whether the runtime stops at a file and reads no later one. A file that this process
// may not read counts: the runtime may read it.
func (d *Dir) takes(f *File) bool {
	return !d.crio || errors.Is(f.Err, fs.ErrPermission) || f.Network != nil && (d.network == "" || d.network == f.Network.Name)
}

// None says why no file is in force.
func (d *Dir) None() string {
	if d.network != "" && len(d.Files) > 0 {
		return "CRI-O takes the network " + d.network + " (cni_default_network), and no file in /" + d.Path + " has it"
	}
	return "/" + d.Path + " has no network"
}

// readDropIns reads the plugins that libcni 1.3 appends to a network: every
// *.conf in the directory with the network's name, sorted.
func readDropIns(root fs.FS, dir string) []DropInConf {
	entries, err := fs.ReadDir(root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []DropInConf{{Name: path.Base(dir), Err: fmt.Errorf("read drop-in directory: %w", err)}}
	}
	var out []DropInConf
	for _, e := range entries {
		if e.IsDir() || path.Ext(e.Name()) != ".conf" {
			continue
		}
		c := DropInConf{Name: e.Name()}
		raw, err := ReadFile(root, path.Join(dir, e.Name()))
		if err == nil {
			err = checkText(e.Name(), raw)
		}
		if err == nil {
			var p Plugin
			p, err = plugin(raw)
			c.Type = p.Type
		}
		if err != nil {
			c.Err = fmt.Errorf("%s/%s: %w", path.Base(dir), e.Name(), err)
		}
		out = append(out, c)
	}
	return out
}

// What follows can be asked of a nil Dir, too, which has no file: one that cannot be read.

// Active returns the file that is in force, nil if the directory has none: the first that
// the runtime takes. If that file is broken, containerd has no network and reads no later file.
func (d *Dir) Active() *File { return d.first(func(*File) bool { return true }) }

// Original returns the file that podweir chains to, nil if there is none: the first that the
// runtime would take if none were ours.
func (d *Dir) Original() *File { return d.first(func(f *File) bool { return !f.Ours() }) }

// Network is that of [Dir.Original], nil if there is none or it is broken.
func (d *Dir) Network() *Network {
	if f := d.Original(); f != nil {
		return f.Network
	}
	return nil
}

func (d *Dir) first(of func(*File) bool) *File {
	if d == nil {
		return nil
	}
	var lacking *File // perhaps it is not known where the runtime has its plugins
	for i := range d.Files {
		switch f := &d.Files[i]; {
		case !of(f) || !d.takes(f):
		case !d.lacks(f):
			return f
		case lacking == nil:
			lacking = f
		}
	}
	return lacking
}

// Own lists the files that podweir made.
func (d *Dir) Own() []File {
	if d == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.Files), func(f File) bool { return !f.Ours() })
}

// Renamed lists the files of podweir's that Cilium renamed.
func (d *Dir) Renamed() []string {
	if d == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.Backups), func(name string) bool { return !strings.HasPrefix(name, Prefix) })
}

// Effective lists the plugin types of the chain in force, with those of the
// drop-in directory if the runtime reads it. It is nil if the file in force is
// missing or broken.
func (d *Dir) Effective(dropIns bool) []string {
	f := d.Active()
	if f == nil || f.Network == nil {
		return nil
	}
	out := f.Network.Types()
	if dropIns && f.Network.takesDropIns() {
		for _, c := range d.DropIns[f.Network.Name] {
			if c.Err == nil {
				out = append(out, c.Type)
			}
		}
	}
	return out
}

// BrokenDropIns are the errors of drop-ins of the network in force that libcni 1.3 cannot load: it
// loads no network then. What this user may not read is not among them, nor what is being written.
func (d *Dir) BrokenDropIns() (all []error) {
	f := d.Active()
	if f == nil || f.Network == nil || !f.Network.takesDropIns() {
		return nil
	}
	for _, c := range d.DropIns[f.Network.Name] {
		if c.Err != nil && !errors.Is(c.Err, fs.ErrPermission) && !errors.Is(c.Err, ErrChanging) {
			all = append(all, c.Err)
		}
	}
	return all
}

// ReadFile reads one configuration whole. It reads twice and compares, since
// not every program writes by renaming; an error wrapping [ErrChanging] says that
// no two readings agreed. Files above [MaxBytes] and what is not a regular file
// are refused unread. Errors are of type [*Error].
func ReadFile(root fs.FS, name string) ([]byte, error) {
	const attempts = 5
	var last []byte
	for i := range attempts {
		raw, err := readOnce(root, name)
		if err != nil {
			return nil, &Error{File: path.Base(name), Err: explain(err)}
		}
		if i > 0 && bytes.Equal(raw, last) {
			return raw, nil
		}
		last = raw
	}
	return nil, &Error{File: path.Base(name), Err: ErrChanging}
}

func readOnce(root fs.FS, name string) ([]byte, error) {
	// Asked before opening: opening a named pipe would wait for a writer.
	info, err := fs.Stat(root, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	if info.Size() > MaxBytes {
		return nil, fmt.Errorf("has %d bytes, want at most %d", info.Size(), MaxBytes)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, MaxBytes+1)) // what grew meanwhile is refused by its size
}

// MayUse is who may use another user's file: in a container, or as a service, root may lack the capability.
const MayUse = "root that owns it or has CAP_DAC_OVERRIDE"

func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cannot be read by this process, want "+MayUse+": %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("is gone, or a link that leads nowhere: %w", err)
	default:
		return err
	}
}
