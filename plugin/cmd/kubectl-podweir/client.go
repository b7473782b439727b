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
	"net/http/httptrace"
	"net/url"
	"slices"
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

// execInPod is how texts of agents begin their commands: the reader's flags and node are not known to them.
const execInPod = "kubectl podweir exec NODE"

// client asks agents through the API server.
type client struct {
	http      *http.Client
	base      *url.URL
	namespace string
	// timeout bounds one request, node is the only one to ask, all if empty.
	timeout time.Duration
	node    string
	// kubectl begins a command for this cluster and namespace, exec one in an agent's pod.
	kubectl, exec string

	// tokens are those that were made last, by the account.
	tokens map[string]token
}

// token is a token and when it was requested, by the clock of this machine: the API
// server's may differ.
type token struct {
	text string
	at   time.Time
}

func (t *token) fresh() bool {
	return t.text != "" && time.Since(t.at) < tokenSeconds*time.Second-tokenSpare
}

func newClient(config *rest.Config, o *options) (*client, error) {
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	flags := strings.Join(o.flags(), " ")
	c := &client{http: h, base: base, namespace: o.namespace, timeout: o.timeout, node: o.node, kubectl: "kubectl " + flags, tokens: map[string]token{}}
	if c.exec = "kubectl podweir "; o.kubeconfig != "" || o.context != "" || o.namespace != defaultNamespace {
		c.exec += flags + " "
	}
	c.exec += "exec " + cmp.Or(o.node, "NODE")
	return c, nil
}

// statusError is an answer of the API server, or of an agent by its proxy, that is none.
type statusError struct {
	status int
	text   string
	// ofAgent says that it is not the API server's own.
	ofAgent bool
}

func (e *statusError) Error() string { return e.text }

func (c *client) do(ctx context.Context, method, path string, query url.Values, header http.Header, body []byte, into any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The time counts once a connection is wanted: before that a plugin of the kubeconfig may have somebody log in.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) {
		time.AfterFunc(c.timeout, func() {
			cancel(fmt.Errorf("no answer within %v (--request-timeout): %w", c.timeout, context.DeadlineExceeded))
		})
	}})
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
		return cmp.Or(context.Cause(ctx), err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxBytes))
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if res.StatusCode/100 != 2 {
		var s struct{ Kind, Message string }
		_ = json.Unmarshal(b, &s) // an agent's answer is text
		why := ": " + reason(cmp.Or(s.Message, string(b)))
		if res.StatusCode == http.StatusForbidden && s.Kind == "Status" {
			if _, right, ok := strings.Cut(why, " is forbidden: "); ok { // not what the request was for: who lacks which right
				why = ": " + right
			}
			why = rights + why
		}
		return &statusError{res.StatusCode, res.Status + why, s.Kind != "Status"}
	}
	return json.Unmarshal(b, into)
}

// reason is what an answer says of itself, in one short line.
func reason(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	const most = 300
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}

// agent is a pod of a DaemonSet of podweir.
type agent struct {
	pod, node, daemonSet string
	port                 int
	// ended is 1 if it does not run, or is about to end.
	ended int
}

// podList is what is read of a list of pods.
type podList struct {
	Metadata struct{ Continue string }
	Items    []struct {
		Metadata struct {
			Name, DeletionTimestamp string
			OwnerReferences         []struct{ Kind, Name string }
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
		Status struct{ Phase string }
	}
}

// agents lists the agents' pods, those that run first.
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
			a := agent{pod: p.Metadata.Name, node: p.Spec.NodeName}
			if p.Status.Phase != "Running" || p.Metadata.DeletionTimestamp != "" {
				a.ended = 1
			}
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
			slices.SortStableFunc(found, func(a, b agent) int { return a.ended - b.ended })
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
			// The second is how many nodes have a pod and should have none.
			Status struct{ DesiredNumberScheduled, NumberMisscheduled int }
		}
		if err := c.do(ctx, http.MethodGet, "/apis/apps/v1/namespaces/"+c.namespace+"/daemonsets/"+name, nil, nil, nil, &d); err != nil {
			return 0, fmt.Errorf("ask how many agents there should be: %w", err)
		}
		n += max(d.Status.DesiredNumberScheduled-len(have)+d.Status.NumberMisscheduled, 0)
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

func (c *client) look(ctx context.Context) (*cluster.Nodes, error) {
	all, err := c.agents(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		where := "in the namespace " + c.namespace
		if c.node != "" {
			where = "on node " + c.node + " " + where
		}
		return nil, fmt.Errorf("podweir has no agent %s: -n names the namespace where podweir is installed; if it is this one, %s describe daemonset -l %s says why", where, c.kubectl, agentLabel)
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
	nodes := cluster.New(c.ask(ctx, all), missing)
	nodes.Agents = c.listed()
	return nodes, nil
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
					nodes[i].Error = strings.ReplaceAll(err.Error(), all[i].pod, "POD") // what many have is told once
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
		var answer json.RawMessage
		err := c.do(ctx, http.MethodGet, path, nil, header, nil, &answer)
		e, refused := errors.AsType[*statusError](err)
		switch {
		case err == nil:
			return c.read(answer)
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

// read is what an agent answers, with commands that reach its cluster from here.
func (c *client) read(text []byte) (*cluster.Answer, error) {
	exec, err := json.Marshal(c.exec)
	if err != nil {
		return nil, err
	}
	var answer cluster.Answer
	err = json.Unmarshal(bytes.ReplaceAll(text, []byte(execInPod), bytes.Trim(exec, `"`)), &answer)
	version := cmp.Or(answer.Version, "of unknown version")
	switch {
	case err != nil:
		return nil, fmt.Errorf("its agent (%s) answers what this command cannot read, take the command of that release: %w", version, err)
	case answer.Schema != cluster.Schema:
		return nil, fmt.Errorf("its agent (%s) answers with schema %d, this command reads %d", version, answer.Schema, cluster.Schema)
	}
	return &answer, nil
}

// unreached is how the API server begins what its proxy says of a pod that it cannot
// connect to (k8s.io/apimachinery/pkg/util/proxy).
const unreached = "error trying to reach service: "

func (c *client) listed() string { return c.kubectl + " get pods -o wide -l " + agentLabel }

// unanswered says in plain words why an agent gave no answer, and what to do.
func (c *client) unanswered(err error) error {
	e, answered := errors.AsType[*statusError](err)
	if answered {
		if _, why, ok := strings.Cut(e.text, unreached); ok {
			return errors.New("its agent does not run, or the API server does not reach its port (" + strings.TrimSpace(why[strings.LastIndex(why, ":")+1:]) + "); see " + c.listed())
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("its agent does not answer within %v (--request-timeout); see %s", c.timeout, c.listed())
	case answered && e.ofAgent && e.status == http.StatusForbidden:
		return errors.New("its agent does not accept the token: run this again if the account NAME-reader was just made; else the agent's cluster-reader names another account")
	case answered && e.ofAgent && e.status == http.StatusServiceUnavailable:
		return errors.New("its agent cannot ask the API server whose token this is; see " + c.kubectl + " logs --prefix -l " + agentLabel)
	}
	return fmt.Errorf("ask its agent: %w", err)
}
