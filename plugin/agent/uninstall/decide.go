// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package uninstall tells the end of the agent from the end of podweir on the node.
//
// Both come as SIGTERM. An upgrade, a restart and a drained node must leave every
// pod shaped; an uninstall must leave nothing. The difference is the agent's own
// DaemonSet: a watch on it stays open, and only its deletion, seen, means uninstall.
// What was not seen, for whatever reason, does not: `podweir uninstall` is there
// for that.
package uninstall

import "time"

const (
	// Window is how long after SIGTERM a deletion still counts.
	Window = 10 * time.Second
	// Settle is how long after SIGTERM a successor of a deleted DaemonSet may
	// appear: one that is deleted and made again is an upgrade. The API server
	// tells of both within milliseconds of each other's requests; a client that
	// replaces an object makes the second after the answer to the first.
	Settle = 3 * time.Second
)

// Object is what is read of a DaemonSet.
type Object struct {
	UID string
	// Deleting says that it has a deletion timestamp: it goes when its pods are
	// gone (foreground deletion).
	Deleting bool
}

// Verdict is what the end of the agent means.
type Verdict uint8

// The verdicts.
const (
	// Wait: it cannot be told yet.
	Wait Verdict = iota + 1
	// Keep: the node keeps podweir. Everything stays as it is.
	Keep
	// Remove: podweir is uninstalled. Nothing may stay.
	Remove
)

func (v Verdict) String() string {
	return map[Verdict]string{Wait: "wait", Keep: "keep", Remove: "remove"}[v]
}

// State is what was seen of the DaemonSet that the agent belongs to, and of others
// by its name. The zero State has seen nothing.
type State struct {
	// own is the UID of the agent's DaemonSet, "" until one was seen.
	own string
	// deleted says that the deletion of own was seen; successor is the UID of one
	// that came in its place.
	deleted   bool
	successor string
}

// Seen takes a DaemonSet that exists, from a list or an event. The first one is the
// agent's own.
func (s *State) Seen(o Object) {
	switch {
	case o.UID == "":
	case s.own == "" && o.Deleting:
		// Whether this is ours or its predecessor cannot be known.
	case s.own == "":
		s.own = o.UID
	case o.UID == s.own:
		s.deleted = s.deleted || o.Deleting
	case o.Deleting:
		if s.successor == o.UID {
			s.successor = ""
		}
	default:
		// Names are unique: the old one is gone, whether that was seen or not.
		s.deleted, s.successor = true, o.UID
	}
}

// Deleted takes the event that a DaemonSet is gone.
func (s *State) Deleted(o Object) {
	switch {
	case o.UID == "" || s.own == "":
	case o.UID == s.own:
		s.deleted = true
	case o.UID == s.successor:
		s.successor = ""
	}
}

// Absent takes a complete and authorised list that has no DaemonSet of the name.
// An error, of whatever kind, is not such a list.
func (s *State) Absent() {
	if s.own != "" {
		s.deleted, s.successor = true, ""
	}
}

// Decide says what SIGTERM meant, some time after it came. From Window on the answer
// is never Wait.
func (s *State) Decide(sinceTerm time.Duration) Verdict {
	switch {
	case s.own == "", s.successor != "":
		return Keep
	case s.deleted && sinceTerm >= Settle:
		return Remove
	case !s.deleted && sinceTerm >= Window:
		return Keep
	default:
		return Wait
	}
}
