// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apitest

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
)

// PutNamespace adds a namespace or changes its annotations.
func (s *Server) PutNamespace(name string, annotations map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces[name] = annotations
}

// FailNamespaces makes requests for namespaces end with an HTTP status; 0 ends that.
func (s *Server) FailNamespaces(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failNamespaces = status
}

// NamespacesAsked returns the names of the namespaces that were requested, one for
// each request.
func (s *Server) NamespacesAsked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

func (s *Server) getNamespace(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("resourceVersion") != "0" {
		refuse(w, http.StatusTooManyRequests, "agents read namespaces from the cache")
		return
	}
	name := r.PathValue("name")
	s.mu.Lock()
	s.asked = append(s.asked, name)
	annotations, ok := s.namespaces[name]
	fail := s.failNamespaces
	s.mu.Unlock()
	if fail != 0 {
		refuse(w, fail, http.StatusText(fail))
		return
	}
	if !ok {
		refuse(w, http.StatusNotFound, "namespaces \""+name+"\" not found")
		return
	}
	all := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 2000)}
	maps.Copy(all, annotations)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Namespace", "apiVersion": "v1", "status": map[string]any{"phase": "Active"},
		"metadata": map[string]any{"name": name, "resourceVersion": "1", "annotations": all, "labels": map[string]any{"kubernetes.io/metadata.name": name}},
	})
}
