// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/profiles"
)

// Runtime is a container runtime with its version.
type Runtime struct {
	// Name is containerd or cri-o; empty if not known.
	Name string
	// Version is as the runtime gives it; empty if not known.
	Version string
	// Libcni is the version of libcni that is built into it, as v1.3.0; empty
	// if not known. It decides over Version.
	Libcni string
}

func (r Runtime) String() string {
	if r.Name == "" {
		return "unknown runtime"
	}
	text := r.Name + " of unknown version"
	if r.Version != "" {
		text = r.Name + " " + r.Version
	}
	if r.Libcni != "" {
		text += " with libcni " + r.Libcni
	}
	return text
}

// ParseRuntime reads what a node's status gives as containerRuntimeVersion:
// "containerd://2.1.3".
func ParseRuntime(s string) (Runtime, error) {
	name, version, ok := strings.Cut(s, "://")
	if !ok || name == "" || version == "" {
		return Runtime{}, fmt.Errorf("container runtime %q is not accepted, want NAME://VERSION, as containerd://2.1.3", s)
	}
	return Runtime{Name: name, Version: version}, nil
}

// ReadsDropIns says whether the runtime appends the plugins of a network's
// drop-in directory, which libcni does from 1.3.0. The versions are those whose
// go.mod was read: containerd 1.6 to 2.0.14 have libcni up to 1.2.3, from 2.1.3
// they have 1.3; CRI-O 1.31 and 1.32 have 1.2.3, from 1.33 they have 1.3.0.
func (r Runtime) ReadsDropIns() profiles.Answer {
	if has := profiles.AtLeast(r.Libcni, 1, 3); has != profiles.Unknown {
		return has
	}
	switch r.Name {
	case "containerd":
		return profiles.AtLeast(r.Version, 2, 1)
	case "cri-o":
		return profiles.AtLeast(r.Version, 1, 33)
	}
	return profiles.Unknown
}

// HasNRI says whether the runtime calls NRI plugins without being configured to:
// containerd has NRI since 1.7, where it is off unless its configuration says
// otherwise, and has it on since 2.0
// (https://github.com/containerd/containerd/pull/9744). What
// configuration decides is unknown.
func (r Runtime) HasNRI() profiles.Answer {
	switch {
	case r.Name != "containerd":
		return profiles.Unknown
	case profiles.AtLeast(r.Version, 2, 0) == profiles.Yes:
		return profiles.Yes
	case profiles.AtLeast(r.Version, 1, 7) == profiles.No:
		return profiles.No
	}
	return profiles.Unknown
}

// Situation is all that the choice of the delivery depends on.
type Situation struct {
	Profile *profiles.Profile
	Runtime Runtime
	// Exclusive says whether a CNI on the node renames the files of others now; unknown
	// only if one may.
	Exclusive profiles.Answer
	// Several says that the runtime loads more than the first network of the directory.
	Several bool
	// NRI says whether NRI is on in the runtime, by its configuration.
	NRI profiles.Answer
	// Writable says whether the directories of conflists and of plugins may be
	// written, Obstacle what of them cannot and why.
	Writable profiles.Answer
	Obstacle string
	// Original is the network to get into, nil if there is none.
	Original *Network
}

// Choice is a delivery with its reason.
type Choice struct {
	Delivery profiles.Delivery `json:"delivery"`
	// Why is one sentence.
	Why string `json:"why"`
	// Do are the commands without which the delivery does not work.
	Do []string `json:"do,omitempty"`
	// Instead are commands after which a simpler delivery works.
	Instead []string `json:"instead,omitempty"`
	// Warning says what stays wrong.
	Warning string `json:"warning,omitempty"`
}

// Choose picks the delivery that survives on this node. A drop-in is a file of podweir's
// alone: nobody has a reason to rewrite it, as installers of other plugins do with the
// first file of the directory. A chain comes next, where it can be in force.
func Choose(s Situation) Choice {
	switch {
	case s.Writable == profiles.No:
		return attachByAgent(s, cmp.Or(s.Obstacle, "the directory of conflists cannot be written"))
	case s.Original.Refused() != "":
		c := attachByAgent(s, s.Original.Refused())
		c.Instead = []string{"upgrade podweir to a release that speaks the CNI version of " + s.Original.File}
		return c
	}
	noDropIn, vain := againstDropIn(s)
	noChain, certain := againstChain(s)
	dropIn := Choice{Delivery: profiles.DropIn, Why: s.Runtime.String() + " reads drop-ins"}
	if noChain != "" {
		dropIn.Why += ", and " + noChain
	}
	switch {
	case noDropIn == "":
		if s.Exclusive != profiles.No {
			dropIn.Instead = s.Profile.Conflist.ShareDo
		}
		return dropIn
	case noChain == "":
		return Choice{Delivery: profiles.Chain, Why: noDropIn}
	case s.Runtime.ReadsDropIns() == profiles.Yes && !vain:
		// Neither replaces the bandwidth plugin, and the chain would not be in force.
		dropIn.Warning = noDropIn
		return dropIn
	case s.Exclusive != profiles.No && len(s.Profile.Conflist.HandedDo) > 0:
		return Choice{
			Delivery: profiles.Handed, Why: noChain + ", and " + noDropIn,
			Do: s.Profile.Conflist.HandedDo, Instead: s.Profile.Conflist.ShareDo,
		}
	case !certain:
		return Choice{Delivery: profiles.Chain, Why: noDropIn, Warning: noChain}
	}
	return attachByAgent(s, noChain+", and "+noDropIn)
}

// WatchIsLate is what to know of the delivery [profiles.Watch].
const WatchIsLate = "a pod runs without its limit until the kubelet has reported its address, a second or two"

// Objection says what is against a delivery on this node, whoever asks for it or
// put it there: certain if it cannot work, else it is a doubt. It is "" if nothing
// is against it.
func Objection(d profiles.Delivery, s Situation) (why string, certain bool) {
	switch d {
	case profiles.Chain:
		return againstChain(s)
	case profiles.DropIn:
		return againstDropIn(s)
	case profiles.NRI:
		if s.Runtime.HasNRI() == profiles.No {
			return s.Runtime.String() + " has no NRI, containerd has it from 1.7", true
		}
	case profiles.Handed:
		return s.Original.Refused(), s.Original.Refused() != ""
	case profiles.Watch:
	}
	return "", false
}

func againstChain(s Situation) (why string, certain bool) {
	switch {
	case s.Original.Refused() != "":
		return s.Original.Refused(), true
	case s.Exclusive == profiles.Yes:
		return "Cilium renames the conflists of others (cni.exclusive=true)", true
	case s.Several:
		return s.Runtime.String() + " loads several networks (max_conf_num is not 1): podweir's file would be a second one beside its original", true
	case s.Original.sortsFirst():
		return s.Original.File + " sorts before every file of podweir's", true
	case s.Original != nil && len(s.Original.Plugins) == 0:
		return s.Original.File + " has no plugin to chain to", true
	case s.Exclusive == profiles.Unknown:
		return "whether Cilium renames the conflists of others is not known: if cni.exclusive is on, podweir's file is renamed and pods start unshaped", false
	}
	return "", false
}

// sortsFirst says that the runtime takes this file before the one that podweir would make
// of it.
func (n *Network) sortsFirst() bool {
	if n == nil {
		return false
	}
	name, err := FileName(n.File)
	return err == nil && n.File < name
}

func againstDropIn(s Situation) (why string, certain bool) {
	reads := s.Runtime.ReadsDropIns()
	switch {
	case reads == profiles.No:
		return s.Runtime.String() + " ignores drop-in directories; containerd reads them from 2.1, CRI-O from 1.33", true
	case !s.Original.takesDropIns():
		if s.Original.Single {
			return s.Original.File + " holds a single plugin, to which the runtime appends no drop-ins", true
		}
		return s.Original.File + " says loadOnlyInlinedPlugins", true
	case s.Original != nil && s.Original.begins:
		return s.Original.File + " has no plugin, and no drop-in of it sorts before podweir's, which makes no interface", true
	case s.Original.Refused() != "":
		return s.Original.Refused(), true
	case reads == profiles.Unknown:
		return "whether " + s.Runtime.String() + " reads drop-in directories is not known; if it does not, pods start unshaped", false
	case s.Original != nil && s.Original.Index(bandwidthType) >= 0:
		return "the chain has the bandwidth plugin, which a drop-in cannot replace: two shapers on one annotation", false
	}
	return "", false
}

// attachByAgent is the choice where no file of podweir's would do.
func attachByAgent(s Situation, obstacle string) Choice {
	c := Choice{Delivery: profiles.NRI, Why: obstacle + ", so the agent attaches through the runtime's NRI hook"}
	switch {
	case s.Runtime.HasNRI() == profiles.No || s.NRI == profiles.No:
		return Choice{Delivery: profiles.Watch, Why: obstacle + ", and NRI is not on in " + s.Runtime.String(), Warning: WatchIsLate}
	case s.Runtime.HasNRI() == profiles.Unknown && s.NRI == profiles.Unknown:
		c.Warning = "whether NRI is on in " + s.Runtime.String() + " is not known"
	}
	return c
}

// Fight is a file of podweir's that another program changes back whenever podweir writes it.
type Fight struct {
	// File is its path on the node, Change what the other program does to it.
	File   string `json:"file"`
	Change string `json:"change"`
	// Since is when podweir stopped.
	Since time.Time `json:"since"`
}

// Action is what is to be done with podweir's top-level file.
type Action string

// The actions.
const (
	// Leave means that nothing is to be done.
	Leave Action = "leave"
	// Write means that the file is to be written or rewritten.
	Write Action = "write"
	// Delete means that the file is to be removed.
	Delete Action = "delete"
)

// Standing is what decides whether podweir's file may sort before the original.
type Standing struct {
	// Delivery is the one in force.
	Delivery profiles.Delivery
	// Original is the file to chain to, nil if the primary CNI has none.
	Original *File
	// Own is podweir's file, nil if it is not there.
	Own *File
	// Entry is podweir's entry, nil for the one that its file has.
	Entry []byte
	// Installed says whether a plugin is in a directory of plugins, nil if every one is.
	Installed func(plugin string) bool
}

// Decide says what to do with podweir's file, and why. It deletes a file whose
// original is gone or broken: with it alone the runtime would call the node ready, and
// pods would fail to start.
//
// It does not ask whether the primary CNI serves pods now. With the original there the
// runtime calls the node ready in any case; without podweir's file, pods would start
// without limits.
func Decide(s Standing) (Action, string) {
	if why := mustNotBe(s); why != "" {
		if s.Own == nil {
			return Leave, why
		}
		return Delete, why
	}
	switch {
	case s.Own == nil:
		return Write, "podweir is not in the chain"
	case s.Own.Network == nil:
		return Write, "podweir's file is broken"
	case s.Own.Network.Mark == nil:
		return Write, "it was made by hand, so that changes of " + s.Original.Name + " do not reach it"
	case s.Own.Network.Mark.Source != s.Original.Name:
		return Write, "it was made from " + s.Own.Network.Mark.Source + ", and the primary CNI's file is " + s.Original.Name + " now"
	}
	if why := s.differs(); why != "" {
		return Write, why
	}
	return Leave, "podweir's file matches " + s.Original.Name
}

// differs says why podweir's file has to be written again, "" if it need not be. What
// others added to it, and how it is written, are no reason.
func (s *Standing) differs() string {
	own := s.Own.Network
	at := own.Index(Type)
	if at < 0 {
		return "another party took podweir out of podweir's file"
	}
	entry := s.Entry
	if entry == nil {
		entry = own.Plugins[at].Raw
	}
	raw, err := Join(s.Original.Network, entry, own, s.Installed)
	if err != nil {
		return err.Error()
	}
	wanted, err := Parse(s.Own.Name, raw)
	if err != nil {
		return err.Error()
	}
	what := own.differs(wanted)
	switch {
	case what == "":
		return ""
	case own.Mark.SHA256 != Hash(s.Original.Raw):
		return s.Original.Name + " changed since podweir's file was made from it: " + what
	case s.Entry != nil && !bytes.Equal(own.Plugins[at].Raw, entry):
		return "podweir's entry changed"
	}
	return "podweir's file was changed, by hand or by another program: " + what
}

// mustNotBe says why podweir's file must not be there, "" if it may.
func mustNotBe(s Standing) string {
	switch {
	case s.Delivery != profiles.Chain:
		return "the delivery is " + string(s.Delivery) + ": podweir needs no conflist"
	case s.Original == nil:
		return "the primary CNI has no configuration"
	case s.Original.Network == nil:
		return "the primary CNI's configuration is broken: " + s.Original.Err.Error()
	case s.Original.Network.Index(Type) >= 0:
		return s.Original.Name + " has podweir in it already"
	case s.Original.Network.Refused() != "":
		return s.Original.Network.Refused()
	default:
		return ""
	}
}
