// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"bytes"

	"github.com/podweir/podweir/compat/profiles"
)

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
