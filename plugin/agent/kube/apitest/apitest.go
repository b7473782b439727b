// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package apitest is an API server for tests: it lists and watches pods and
// takes Events, in the JSON that a real one speaks.
package apitest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Token is the bearer token that the server accepts at first.
const Token = "token-1"

// Pod is what a test says of a pod; the server makes a whole manifest of it.
type Pod struct {
	Namespace, Name, UID, Node string
	Annotations                map[string]string
	HostNetwork                bool
	// Deleting says that the pod was asked to end.
	Deleting bool
	// PodIP is empty as long as the pod's network is not set up.
	PodIP string
	// Restarts is how often its container was started again, InitRestarts its init container.
	Restarts, InitRestarts int
	// Phase is Running if it is empty.
	Phase string
	// Stopped says that none of its containers runs.
	Stopped bool
	// Fat is how many bytes of things that nobody reads come with it.
	Fat int
}

// Event is an Event that was posted.
type Event struct {
	Type, Reason, Message string
	InvolvedObject        struct{ Kind, Namespace, Name, UID string }
	Metadata              struct{ Namespace, Name string }
}

// Server is the API server of one cluster.
type Server struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	// oldest is the first version that a watch may begin at.
	oldest  int
	pods    map[string]change
	log     []change
	changed chan struct{}
	cut     chan struct{}
	events  []Event
	fail    int
	failed  int
	// lose is how many Events are taken whose answer is lost.
	lose    int
	token   string
	lists   int
	watches int

	namespaces map[string]map[string]string
	asked      []string
	// failNamespace is fail for a namespace alone.
	failNamespace map[string]int
	// lacking are the resources that the account has no right to.
	lacking []string
}

// change is a pod as it was made at a version.
type change struct {
	Pod
	kind    string
	version int
}

// New returns a server, over TLS; Close it.
func New() *Server {
	s := &Server{
		version: 1, pods: make(map[string]change), changed: make(chan struct{}), cut: make(chan struct{}), token: Token,
		namespaces: map[string]map[string]string{"default": nil}, failNamespace: make(map[string]int),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", s.getPods)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/events", s.postEvent)
	mux.HandleFunc("GET /api/v1/namespaces/{name}", s.getNamespace)
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", reviewToken)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", reviewAccess)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", s.reviewOwnAccess)
	s.Server = httptest.NewUnstartedServer(s.guard(mux))
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

// Put adds a pod or changes it.
func (s *Server) Put(p Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "MODIFIED"
	if _, ok := s.pods[p.UID]; !ok {
		kind = "ADDED"
	}
	s.pods[p.UID] = s.happened(p, kind)
}

// Delete removes a pod.
func (s *Server) Delete(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happened(s.pods[uid].Pod, "DELETED")
	delete(s.pods, uid)
}

func (s *Server) happened(p Pod, kind string) change {
	s.version++
	c := change{p, kind, s.version}
	s.log = append(s.log, c)
	close(s.changed)
	s.changed = make(chan struct{})
	return c
}

// with has nothing else happen during f.
func (s *Server) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Fail makes every request from now on end with an HTTP status; 0 ends that.
func (s *Server) Fail(status int) { s.with(func() { s.fail = status }) }

// Failed is how many requests ended so, or were for an Event that was taken already.
func (s *Server) Failed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Lose has the next Events, so many, taken and the answers lost.
func (s *Server) Lose(answers int) { s.with(func() { s.lose = answers }) }

// SetToken replaces the token that is accepted.
func (s *Server) SetToken(token string) { s.with(func() { s.token = token }) }

// Cut ends every watch in the middle, as a broken connection does.
func (s *Server) Cut() {
	s.with(func() {
		close(s.cut)
		s.cut = make(chan struct{})
	})
}

// Expire forgets the past: watches of it are answered 410.
func (s *Server) Expire() {
	s.with(func() {
		s.version++
		s.oldest, s.log = s.version, nil
	})
}

// Events returns what was posted.
func (s *Server) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Event(nil), s.events...)
}

// Requests returns how many lists and watches were requested.
func (s *Server) Requests() (lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches
}

func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		fail, token := s.fail, s.token
		s.failed += min(fail, 1)
		s.mu.Unlock()
		switch {
		case fail != 0:
			refuse(w, fail, http.StatusText(fail))
		case r.Header.Get("Authorization") != "Bearer "+token:
			refuse(w, http.StatusUnauthorized, "Unauthorized")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func status(code int, message string) map[string]any {
	return map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": message, "reason": http.StatusText(code), "code": code,
	}
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, message))
}

func (s *Server) postEvent(w http.ResponseWriter, r *http.Request) {
	var e Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.Metadata.Namespace != r.PathValue("namespace") {
		refuse(w, http.StatusUnprocessableEntity, fmt.Sprint("event in another namespace, or no event: ", err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(e.Metadata.Name) > 253 || strings.Contains(e.Metadata.Name, "-."):
		refuse(w, http.StatusUnprocessableEntity, "metadata.name is not the name of a subdomain")
		return
	case slices.ContainsFunc(s.events, func(o Event) bool { return o.Metadata == e.Metadata }):
		s.failed++
		refuse(w, http.StatusConflict, "the event exists")
		return
	}
	s.events = append(s.events, e)
	if s.lose > 0 {
		s.lose--
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte("{}"))
}

func (s *Server) getPods(w http.ResponseWriter, r *http.Request) {
	node, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
	if !ok {
		refuse(w, http.StatusForbidden, "pods of all nodes are not for this account")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "true" {
		s.list(w, node)
		return
	}
	since, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.watch(w, r, node, since)
}

func (s *Server) list(w http.ResponseWriter, node string) {
	s.mu.Lock()
	s.lists++
	items := []any{}
	for _, k := range s.pods {
		if k.Node == node {
			items = append(items, k.manifest())
		}
	}
	version := s.version
	s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "PodList", "apiVersion": "v1", "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(version)},
	})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, node string, since int) {
	s.mu.Lock()
	s.watches++
	cut := s.cut
	s.mu.Unlock()
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	_ = flush.Flush()
	for {
		s.mu.Lock()
		changed := s.changed
		if since < s.oldest {
			s.mu.Unlock()
			_ = enc.Encode(map[string]any{"type": "ERROR", "object": status(http.StatusGone, "too old resource version")})
			return
		}
		var news []change
		for _, c := range s.log {
			if c.version > since && c.Node == node {
				news = append(news, c)
			}
		}
		since = max(since, s.version)
		s.mu.Unlock()
		for _, c := range news {
			_ = enc.Encode(map[string]any{"type": c.kind, "object": c.manifest()})
		}
		_ = flush.Flush()
		select {
		case <-r.Context().Done():
			return
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-changed:
		}
	}
}

func (k *change) manifest() map[string]any {
	// Half of the weight is where kubectl keeps what was applied, the rest in
	// the containers.
	half := k.Fat / 2
	annotations := map[string]any{}
	if half > 0 {
		annotations["kubectl.kubernetes.io/last-applied-configuration"] = strings.Repeat("x", half)
	}
	for name, value := range k.Annotations {
		annotations[name] = value
	}
	env := []any{}
	for i := range half / 100 {
		env = append(env, map[string]any{"name": "VARIABLE_" + strconv.Itoa(i), "value": strings.Repeat("v", 60)})
	}
	metadata := map[string]any{
		"namespace": k.Namespace, "name": k.Name, "uid": k.UID,
		"resourceVersion": strconv.Itoa(k.version), "annotations": annotations,
		"managedFields": []any{map[string]any{"manager": "kubelet", "fieldsV1": map[string]any{"f:metadata": map[string]any{}}}},
	}
	state := map[string]any{"running": map[string]any{"startedAt": "2026-01-02T03:04:05Z"}}
	if k.Stopped {
		state = map[string]any{"waiting": map[string]any{"reason": "ContainerCreating"}}
	}
	if k.Deleting {
		metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
	}
	return map[string]any{
		"kind": "Pod", "apiVersion": "v1", "metadata": metadata,
		"spec": map[string]any{
			"nodeName": k.Node, "hostNetwork": k.HostNetwork,
			"containers": []any{map[string]any{"name": "c", "image": "registry.example/c@sha256:0", "env": env}},
		},
		"status": map[string]any{
			"phase": cmp.Or(k.Phase, "Running"), "podIP": k.PodIP, "hostIP": "192.0.2.1", "containerStatuses": []any{map[string]any{"name": "c", "restartCount": k.Restarts, "state": state}},
			"initContainerStatuses": []any{map[string]any{"name": "i", "restartCount": k.InitRestarts}},
		},
	}
}
