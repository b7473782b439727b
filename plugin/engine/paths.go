// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/mailbox"
)

// Paths are where podweir keeps state: pins, and what may be deleted at any
// time (ruling 11).
type Paths struct {
	// Pins is a directory on bpffs.
	Pins string
	// Run is a directory on tmpfs: probe results, and what is in [Paths.Mail].
	Run string
}

// DefaultPaths are those of a node.
var DefaultPaths = Paths{Pins: "/sys/fs/bpf/podweir", Run: "/run/podweir"}

// Mail is where the agent, podweir-cni and the commands leave each other word.
func (p Paths) Mail() mailbox.Dir { return mailbox.Dir(p.Run) }

// Unenforced returns the limits that the agent found not to hold, none if no agent
// watches. Attachments may have gone since it looked.
func (n *Node) Unenforced() ([]mailbox.Unenforced, error) {
	all, err := n.Paths.Mail().Unenforced()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	ids, err := n.List()
	return stillAttached(all, ids), err
}

func stillAttached(all []mailbox.Unenforced, ids []attach.ID) []mailbox.Unenforced {
	return slices.DeleteFunc(all, func(u mailbox.Unenforced) bool { return !slices.Contains(ids, u.ID) })
}
