// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // how kubeconfigs of clouds log in
	"k8s.io/client-go/rest"

	"github.com/podweir/podweir/plugin/status/cluster"
)

// Limits of what is requested and read.
const (
	// beside is how many agents are asked at a time.
	beside = 64
	// maxBytes is how much of an answer is read: that of 250 pods has some 100 kB.
	maxBytes = 16 << 20
	// tokenSeconds is how long a token lives, the least that Kubernetes makes. One that is
	// within tokenSpare of its end is replaced: a look may take that long.
	tokenSeconds = 600
	tokenSpare   = 2 * time.Minute
	// tries and tryPause are for an agent that is asked to review too many tokens: it
	// takes one a second from each source.
	tries    = 4
	tryPause = 1100 * time.Millisecond
)

// What the agent serves; it has the same names in plugin/agent/serve, which needs Linux.
const (
	nodePath    = "/v1/node"
	tokenHeader = "Podweir-Token"
	portName    = "cluster"
	agentLabel  = "app.kubernetes.io/name=podweir,app.kubernetes.io/component=agent"
)

// rights says where the rights are that a user lacks. It comes first: causes are cut.
const rights = " (the chart's Role NAME-reader has the rights)"

// client asks agents through the API server.
type client struct {
	http      *http.Client
	base      *url.URL
	namespace string
	// timeout bounds one request, node is the only one to ask, all if empty.
	timeout time.Duration
	node    string

	// tokens are those that were made last, by the account.
	tokens map[string]token
}

// token is a token and when it was requested, by the clock of this machine: the API
// server's may differ.
type token struct {
	text string
	at   time.Time
}

// fresh says whether the token can be used for another look.
func (t *token) fresh() bool {
	return t.text != "" && time.Since(t.at) < tokenSeconds*time.Second-tokenSpare
}

func newClient(config *rest.Config, namespace string, timeout time.Duration, node string) (*client, error) {
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &client{http: h, base: base, namespace: namespace, timeout: timeout, node: node, tokens: map[string]token{}}, nil
}

// statusError is an answer of the API server, or of an agent by its proxy, that is none.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// do sends a request and reads the answer into a value.
func (c *client) do(ctx context.Context, method, path string, query url.Values, header http.Header, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxBytes))
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		why := ": " + reason(b)
		if res.StatusCode == http.StatusForbidden {
			why = rights + denied(why)
		}
		return &statusError{res.StatusCode, res.Status + why}
	}
	return json.Unmarshal(b, into)
}

// reason is what an answer says of itself, in one short line.
func reason(b []byte) string {
	var s struct{ Message string }
	text := string(b)
	if json.Unmarshal(b, &s) == nil && s.Message != "" {
		text = s.Message
	}
	text = strings.Join(strings.Fields(text), " ")
	const most = 300
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}

// denied is what the API server says of a request that it forbids, without what the request
// was for: who lacks which right.
func denied(why string) string {
	if _, right, ok := strings.Cut(why, " is forbidden: "); ok {
		return ": " + right
	}
	return why
}

// agent is a pod of a DaemonSet of podweir.
type agent struct {
	pod, node, address, daemonSet string
	port                          int
}

// common is an error in words that are the same for every node: what many have is told
// once.
func (a *agent) common(err error) string {
	text := strings.ReplaceAll(err.Error(), a.pod, "POD")
	if a.address == "" {
		return text
	}
	return strings.ReplaceAll(text, a.address, "ADDRESS")
}

// podList is what is read of a list of pods.
type podList struct {
	Metadata struct{ Continue string }
	Items    []struct {
		Metadata struct {
			Name            string
			OwnerReferences []struct{ Kind, Name string }
		}
		Spec struct {
			NodeName   string
			Containers []struct {
				Ports []struct {
					Name          string
					ContainerPort int
				}
			}
		}
		Status struct{ PodIP string }
	}
}

// agents lists the agents' pods.
func (c *client) agents(ctx context.Context) ([]agent, error) {
	var found []agent
	query := url.Values{"labelSelector": {agentLabel}, "limit": {"500"}}
	if c.node != "" {
		query.Set("fieldSelector", "spec.nodeName="+c.node)
	}
	for {
		var page podList
		if err := c.do(ctx, http.MethodGet, "/api/v1/namespaces/"+c.namespace+"/pods", query, nil, nil, &page); err != nil {
			return nil, fmt.Errorf("list the agents' pods in the namespace %s (-n names another one): %w", c.namespace, err)
		}
		for _, p := range page.Items {
			a := agent{pod: p.Metadata.Name, node: p.Spec.NodeName, address: p.Status.PodIP}
			for _, o := range p.Metadata.OwnerReferences {
				if o.Kind == "DaemonSet" {
					a.daemonSet = o.Name
				}
			}
			for _, container := range p.Spec.Containers {
				for _, port := range container.Ports {
					if port.Name == portName {
						a.port = port.ContainerPort
					}
				}
			}
			if a.daemonSet != "" && a.node != "" {
				found = append(found, a)
			}
		}
		if page.Metadata.Continue == "" {
			return found, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// missing is how many nodes should have an agent and have no pod of it.
func (c *client) missing(ctx context.Context, all []agent) (int, error) {
	nodes := map[string]map[string]bool{}
	for _, a := range all {
		if nodes[a.daemonSet] == nil {
			nodes[a.daemonSet] = map[string]bool{}
		}
		nodes[a.daemonSet][a.node] = true
	}
	n := 0
	for name, have := range nodes {
		var d struct {
			Status struct{ DesiredNumberScheduled int }
		}
		if err := c.do(ctx, http.MethodGet, "/apis/apps/v1/namespaces/"+c.namespace+"/daemonsets/"+name, nil, nil, nil, &d); err != nil {
			return 0, fmt.Errorf("ask how many agents there should be: %w", err)
		}
		n += max(d.Status.DesiredNumberScheduled-len(have), 0)
	}
	return n, nil
}

// account is the service account whose tokens the agents of a DaemonSet accept.
func account(daemonSet string) string { return daemonSet + "-reader" }

// makeToken makes a token that the agents of a DaemonSet accept and that is good for
// nothing else, unless there is one that still lives long enough.
func (c *client) makeToken(ctx context.Context, daemonSet string) error {
	name := account(daemonSet)
	if t := c.tokens[name]; t.fresh() {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"audiences": []string{cluster.Audience}, "expirationSeconds": tokenSeconds},
	})
	if err != nil {
		return err
	}
	// Without the monotonic clock, which stands still while a laptop sleeps.
	at := time.Now().Round(0)
	var made struct{ Status struct{ Token string } }
	path := "/api/v1/namespaces/" + c.namespace + "/serviceaccounts/" + name + "/token"
	if err := c.do(ctx, http.MethodPost, path, nil, nil, body, &made); err != nil {
		return fmt.Errorf("make a token of the account %s/%s, which the agents accept: %w", c.namespace, name, err)
	}
	c.tokens[name] = token{made.Status.Token, at}
	return nil
}

// look asks all agents.
func (c *client) look(ctx context.Context) (*cluster.Nodes, error) {
	all, err := c.agents(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		where := "the namespace " + c.namespace
		if c.node != "" {
			where = "node " + c.node + " in " + where
		}
		return nil, fmt.Errorf("podweir has no agent on %s (labels %s); -n names the namespace where podweir is installed", where, agentLabel)
	}
	missing := 0
	if c.node == "" {
		if missing, err = c.missing(ctx, all); err != nil {
			return nil, err
		}
	}
	for _, a := range all {
		if a.port != 0 {
			if err := c.makeToken(ctx, a.daemonSet); err != nil {
				return nil, err
			}
		}
	}
	return cluster.New(c.ask(ctx, all), missing), nil
}

// ask asks agents beside one another.
func (c *client) ask(ctx context.Context, all []agent) []cluster.Node {
	nodes := make([]cluster.Node, len(all))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(beside, len(all)) {
		wg.Go(func() {
			for i := range next {
				nodes[i].Name = all[i].node
				answer, err := c.askOne(ctx, &all[i])
				if err != nil {
					nodes[i].Error = all[i].common(err)
					continue
				}
				nodes[i].Answer = answer
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	wg.Wait()
	return nodes
}

func (c *client) askOne(ctx context.Context, a *agent) (*cluster.Answer, error) {
	if a.port == 0 {
		return nil, errors.New("its agent does not report its state: the chart's cluster.enabled is false, or the release is older than that")
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/https:%s:%d/proxy%s", c.namespace, a.pod, a.port, nodePath)
	header := http.Header{tokenHeader: {c.tokens[account(a.daemonSet)].text}}
	for try := 1; ; try++ {
		var answer cluster.Answer
		err := c.do(ctx, http.MethodGet, path, nil, header, nil, &answer)
		e, refused := errors.AsType[*statusError](err)
		switch {
		case err == nil && answer.Schema != cluster.Schema:
			return nil, fmt.Errorf("its agent (%s) answers with schema %d, this command reads %d", cmp.Or(answer.Version, "of unknown version"), answer.Schema, cluster.Schema)
		case err == nil:
			return &answer, nil
		case !refused || e.status != http.StatusTooManyRequests || try == tries:
			return nil, c.unanswered(err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(tryPause):
		}
	}
}

// unreached is how the API server begins what its proxy says of a pod that it cannot
// connect to (k8s.io/apimachinery/pkg/util/proxy).
const unreached = "error trying to reach service: "

// unanswered says in plain words why an agent gave no answer, and what to do.
func (c *client) unanswered(err error) error {
	pods := fmt.Sprintf("; see kubectl -n %s get pods -o wide -l %s", c.namespace, agentLabel)
	if e, ok := errors.AsType[*statusError](err); ok {
		if _, why, ok := strings.Cut(e.text, unreached); ok {
			return errors.New("its agent does not run, or the API server does not reach its port (" + strings.TrimSpace(why[strings.LastIndex(why, ":")+1:]) + ")" + pods)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("its agent does not answer within %v (--request-timeout)%s", c.timeout, pods)
	}
	return fmt.Errorf("ask its agent: %w", err)
}
