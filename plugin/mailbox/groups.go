// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Group is a limit that the pods of a namespace have together on this node, in one direction, as
// the agent divides it.
type Group struct {
	Namespace string                       `json:"namespace"`
	Direction terms.Named[terms.Direction] `json:"direction"`
	Limit     units.BitRate                `json:"limitBitsPerSecond"`
	// Pods is how many have a share, and Outside are the pods that have none.
	Pods    int      `json:"pods"`
	Outside []string `json:"outside,omitempty"`
	// Sent is what all of them sent in the last second, and Largest the pod that sent most of it,
	// "" if none sent anything. LargestPart is its part of Sent, at most 1.
	Sent        units.BitRate `json:"sentBitsPerSecond"`
	Largest     string        `json:"largest,omitempty"`
	LargestPart float64       `json:"largestPart,omitempty"`
	// AtLimitSince is when the pods together came to the limit, zero if they are not at it.
	AtLimitSince time.Time `json:"atLimitSince,omitzero"`
	// SentBytes and Held are sums since the agent began: wire bytes, and the time at the limit.
	SentBytes units.Bytes   `json:"sentBytes"`
	Held      time.Duration `json:"heldNanoseconds"`
	// DroppedPackets and DroppedBytes are what the ceiling of the group dropped, in wire bytes.
	DroppedPackets uint64 `json:"droppedPackets,omitempty"`
	DroppedBytes   uint64 `json:"droppedBytes,omitempty"`
}

func (d Dir) groupsPath() string { return filepath.Join(string(d), "groups.json") }

// RecordGroups replaces the record of the groups that the agent divides.
func (d Dir) RecordGroups(all []Group) error { return Write(d.groupsPath(), all) }

// ForgetGroups removes that record: no agent divides any more.
func (d Dir) ForgetGroups() { _ = os.Remove(d.groupsPath()) }

// Groups returns the limits that an agent divides now, none without one: the agent writes them
// every second.
func (d Dir) Groups() ([]Group, error) {
	return readFresh[Group](d.groupsPath())
}

// readFresh reads what an agent writes again and again, nothing if it is too old.
func readFresh[T any](path string) ([]T, error) {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil || !fresh(st) {
		return nil, err
	}
	return readJSON[T](path)
}
