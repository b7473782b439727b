// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/podweir/podweir/plugin/netconf"
)

func (p Paths) namespaceDir() string { return filepath.Join(p.Run, "namespaces") }

func (p Paths) namespacePath(name string) string {
	return filepath.Join(p.namespaceDir(), url.QueryEscape(name)+".json")
}

// Namespace returns what the agent recorded of a Namespace. It is nil where nothing
// is set, and where the agent does not know the namespace yet: then the rates of the
// node alone are in force until the agent looks at the pod.
func (p Paths) Namespace(name string) (netconf.Namespace, error) {
	if name == "" {
		return nil, nil
	}
	b, err := os.ReadFile(p.namespacePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("rates of namespace %s: %w", name, err)
	}
	var ns netconf.Namespace
	if err := json.Unmarshal(b, &ns); err != nil {
		return nil, fmt.Errorf("rates of namespace %s: %s: %w", name, p.namespacePath(name), err)
	}
	return ns, nil
}

// RecordNamespace leaves for podweir-cni what is set on a Namespace; an empty one has
// no record. A reader finds the old record or the new one, never a part.
func (p Paths) RecordNamespace(name string, ns netconf.Namespace) error {
	path := p.namespacePath(name)
	if len(ns) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rates of namespace %s: %w", name, err)
		}
		return nil
	}
	if err := writeJSON(path, ns); err != nil {
		return fmt.Errorf("rates of namespace %s: %w", name, err)
	}
	return nil
}

// RecordedNamespaces returns the names of all namespaces that have a record.
func (p Paths) RecordedNamespaces() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(p.namespaceDir(), "*.json"))
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
