// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package mailbox is podweir's directory on tmpfs, by which the agent, podweir-cni and the
// commands leave each other word. All of it may be deleted at any time.
package mailbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Dir is the directory.
type Dir string

// readJSON reads what [Write] left, nothing if there is no such file.
func readJSON[T any](path string) ([]T, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []T
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Write replaces a file, and makes its directory if that is missing. Everybody may
// read the file.
func Write(path string, v any) error {
	content, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(content, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// readRecords reads the records in a directory, by the order of their names. One that goes
// meanwhile is passed over; one that cannot be decoded is what damaged makes of its name,
// without the extension, and of what is wrong.
func readRecords[T any](dir string, damaged func(name, why string) T) ([]T, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []T
	for _, name := range names {
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var one T
		if err := json.Unmarshal(b, &one); err != nil {
			why := fmt.Sprintf("it had no limit, and the record of why is damaged: remove %s: %v", name, err)
			one = damaged(strings.TrimSuffix(filepath.Base(name), ".json"), why)
		}
		all = append(all, one)
	}
	return all, nil
}

func (d Dir) namespaceDir() string { return filepath.Join(string(d), "namespaces") }

func (d Dir) namespacePath(name string) string {
	return filepath.Join(d.namespaceDir(), url.QueryEscape(name)+".json")
}

// Namespace returns what the agent recorded of a Namespace. It is nil where nothing
// is set, and where the agent does not know the namespace yet: then the rates of the
// node alone are in force until the agent looks at the pod.
func (d Dir) Namespace(name string) (netconf.Namespace, error) {
	if name == "" {
		return nil, nil
	}
	b, err := os.ReadFile(d.namespacePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("rates of namespace %s: %w", name, err)
	}
	var ns netconf.Namespace
	if err := json.Unmarshal(b, &ns); err != nil {
		return nil, fmt.Errorf("rates of namespace %s: %s: %w", name, d.namespacePath(name), err)
	}
	return ns, nil
}

// RecordNamespace leaves for podweir-cni what is set on a Namespace; an empty one has
// no record. A reader finds the old record or the new one, never a part.
func (d Dir) RecordNamespace(name string, ns netconf.Namespace) error {
	path := d.namespacePath(name)
	if len(ns) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rates of namespace %s: %w", name, err)
		}
		return nil
	}
	if err := Write(path, ns); err != nil {
		return fmt.Errorf("rates of namespace %s: %w", name, err)
	}
	return nil
}

// RecordedNamespaces returns the names of all namespaces that have a record.
func (d Dir) RecordedNamespaces() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(d.namespaceDir(), "*.json"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		if name, err := url.QueryUnescape(strings.TrimSuffix(filepath.Base(file), ".json")); err == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// Reasons of an [Unshaped] that readers tell apart from the others.
const (
	// ReasonInvalid: a rate cannot be read.
	ReasonInvalid = "invalid"
	// ReasonOverdue: the pod's network was not found in time.
	ReasonOverdue = "overdue"
)

// Unshaped tells that a pod runs without its limit, or without that of one direction,
// as the agent knows it. It names the pod and not an attachment: the runtime may not
// even have a sandbox of it.
type Unshaped struct {
	Pod string `json:"pod"`
	UID string `json:"uid"`
	// Reason is a value of the metric podweir_unshaped_pods.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Error  string    `json:"error"`
}

func (d Dir) unshapedDir() string { return filepath.Join(string(d), "unshaped") }

func (d Dir) unshapedPath(uid string) string {
	return filepath.Join(d.unshapedDir(), url.QueryEscape(uid)+".json")
}

// RecordUnshaped leaves a record for status and the doctor. That it cannot be written
// is logged: the pod's Event says the same.
func (d Dir) RecordUnshaped(log *slog.Logger, u *Unshaped) {
	path := d.unshapedPath(u.UID)
	if err := Write(path, u); err != nil {
		log.Error("record of a pod without its limit not written", "path", path, "error", err)
	}
}

// ClearUnshaped removes the record of a pod, if there is one.
func (d Dir) ClearUnshaped(uid string) { _ = os.Remove(d.unshapedPath(uid)) }

// ForgetUnshaped removes all such records: an agent that starts looks at every pod
// itself.
func (d Dir) ForgetUnshaped() { _ = os.RemoveAll(d.unshapedDir()) }

// Unshaped returns the pods that run without a limit as the agent knows it, in the
// order of their UIDs.
func (d Dir) Unshaped() ([]Unshaped, error) {
	return readRecords(d.unshapedDir(), func(uid, why string) Unshaped { return Unshaped{Pod: "pod " + uid, UID: uid, Error: why} })
}

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
