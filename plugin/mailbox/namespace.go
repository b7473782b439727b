// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

func (d Dir) namespacePath(name string) string {
	return d.path("namespaces", url.QueryEscape(name)+".json")
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
	files, err := filepath.Glob(d.path("namespaces", "*.json"))
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

// Group is a limit of a namespace as the agent divides it.
type Group struct {
	terms.Group
	// SentBytes and Held are sums since the agent began: wire bytes, and the time at the limit.
	SentBytes units.Bytes   `json:"sentBytes"`
	Held      time.Duration `json:"heldNanoseconds"`
	// DroppedPackets and DroppedBytes are what the ceiling of the group dropped, in wire bytes.
	DroppedPackets uint64 `json:"droppedPackets,omitempty"`
	DroppedBytes   uint64 `json:"droppedBytes,omitempty"`
}

// RecordGroups replaces the record of the groups that the agent divides.
func (d Dir) RecordGroups(all []Group) error { return Write(d.path(groupsFile), all) }

// ForgetGroups removes that record: no agent divides any more.
func (d Dir) ForgetGroups() { _ = os.Remove(d.path(groupsFile)) }

// Groups returns the limits that an agent divides now, none without one: the agent writes them
// every four seconds.
func (d Dir) Groups() ([]Group, error) { return readFresh[Group](d.path(groupsFile)) }
