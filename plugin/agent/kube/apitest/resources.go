// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apitest

import (
	"encoding/json"
	"maps"
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

// Scrapers is a group of users that may get /metrics. A token for reviews is "user:group:group",
// and the server knows no token without a user. One that was made for an audience is
// "audience@user" and good for nothing else.
const Scrapers = "scrapers"

func reviewToken(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Spec struct {
			Token     string
			Audiences []string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	audience, token, made := strings.Cut(review.Spec.Token, "@")
	if !made {
		audience, token = "api", review.Spec.Token
	}
	if len(review.Spec.Audiences) == 0 {
		review.Spec.Audiences = []string{"api"}
	}
	parts := strings.Split(token, ":")
	if made {
		parts = []string{token}
	}
	status := map[string]any{"authenticated": false, "error": "no such token"}
	if parts[0] != "" && slices.Contains(review.Spec.Audiences, audience) {
		status = map[string]any{"authenticated": true, "audiences": []string{audience}, "user": map[string]any{
			"username": parts[0], "uid": "uid-" + parts[0], "groups": parts[1:], "extra": map[string]any{"key": []string{"value"}},
		}}
	}
	created(w, status)
}

func reviewAccess(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Spec struct {
			User, UID             string
			Groups                []string
			Extra                 map[string][]string
			NonResourceAttributes struct{ Path, Verb string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	s := review.Spec
	created(w, map[string]any{"allowed": s.UID == "uid-"+s.User && slices.Equal(s.Extra["key"], []string{"value"}) &&
		slices.Contains(s.Groups, Scrapers) && s.NonResourceAttributes.Path == "/metrics" && s.NonResourceAttributes.Verb == "get"})
}

func created(w http.ResponseWriter, status map[string]any) {
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status})
}
