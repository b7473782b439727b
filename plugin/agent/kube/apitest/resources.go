// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apitest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// PutNamespace adds a namespace or changes its annotations.
func (s *Server) PutNamespace(name string, annotations map[string]string) {
	s.with(func() { s.namespaces[name] = annotations })
}

// FailNamespace makes requests for a namespace end with an HTTP status; 0 ends that.
func (s *Server) FailNamespace(name string, status int) {
	s.with(func() { s.failNamespace[name] = status })
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
	fail := s.failNamespace[name]
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

// Lack has the account without rights to these resources, as group/resource, and to no others. Only who asks for its rights
// is told.
func (s *Server) Lack(resources ...string) { s.with(func() { s.lacking = resources }) }

func (s *Server) reviewOwnAccess(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Spec struct {
			ResourceAttributes struct{ Verb, Group, Resource string }
		}
	}
	err := json.NewDecoder(r.Body).Decode(&review)
	a := review.Spec.ResourceAttributes
	if err != nil || a.Verb == "" {
		refuse(w, http.StatusUnprocessableEntity, "no resource or no verb")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	created(w, map[string]any{"allowed": !slices.Contains(s.lacking, a.Group+"/"+a.Resource)})
}

func created(w http.ResponseWriter, status map[string]any) {
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status})
}
