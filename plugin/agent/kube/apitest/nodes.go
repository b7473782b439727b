// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apitest

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Taint is a taint of a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
	// TimeAdded is set by the server where the effect is NoExecute.
	TimeAdded string `json:"timeAdded,omitempty"`
}

type node struct {
	taints  []Taint
	patches int
	// before is called ahead of the next patch, without the lock.
	before func()
}

// PutNode adds a node or changes its taints.
func (s *Server) PutNode(name string, taints ...Taint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	if n == nil {
		n = &node{}
		s.nodes[name] = n
	}
	n.taints = taints
}

// Taints returns the taints of a node, and how often it was patched.
func (s *Server) Taints(name string) (taints []Taint, patches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	return slices.Clone(n.taints), n.patches
}

// BeforePatch has something happen to a node between an agent's look at it and the
// patch that follows, once.
func (s *Server) BeforePatch(name string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name].before = f
}

func (s *Server) getNode(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	if n == nil {
		refuse(w, http.StatusNotFound, "nodes \""+name+"\" not found")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Node", "apiVersion": "v1", "metadata": map[string]any{"name": name, "resourceVersion": "1"},
		"spec": map[string]any{"podCIDR": "10.0.0.0/24", "taints": n.taints},
	})
}

// patchNode takes JSON Patches of the operations test and remove on single taints: a
// test that fails changes nothing (RFC 6902, section 5).
func (s *Server) patchNode(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Content-Type"); got != "application/json-patch+json" {
		refuse(w, http.StatusUnsupportedMediaType, got)
		return
	}
	s.mu.Lock()
	n := s.nodes[r.PathValue("name")]
	var before func()
	if n != nil {
		before, n.before = n.before, nil
	}
	s.mu.Unlock()
	if before != nil {
		before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ops []struct {
		Op, Path string
		Value    *Taint
	}
	if err := json.NewDecoder(r.Body).Decode(&ops); err != nil || n == nil {
		refuse(w, http.StatusUnprocessableEntity, "no such node, or no JSON Patch")
		return
	}
	taints := slices.Clone(n.taints)
	for _, o := range ops {
		i, err := strconv.Atoi(strings.TrimPrefix(o.Path, "/spec/taints/"))
		switch {
		case err != nil || i < 0 || i >= len(taints):
			refuse(w, http.StatusUnprocessableEntity, "the server rejected our request due to an error in our request: "+o.Path)
			return
		case o.Op == "test" && reflect.DeepEqual(*o.Value, taints[i]):
		case o.Op == "remove":
			taints = slices.Delete(taints, i, i+1)
		default:
			refuse(w, http.StatusUnprocessableEntity, "testing value "+o.Path+" failed: test failed")
			return
		}
	}
	n.taints = taints
	n.patches++
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}
