// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// How often the agent looks at its node: while it is not ready at itself alone, and
// then, since a node can be registered again with its taints, rarely.
const (
	readyInterval = time.Second
	taintInterval = 5 * time.Minute
	taintTimeout  = 10 * time.Second
)

// StartupTaint takes a taint off a node that keeps pods away until podweir can limit
// them. It never adds one.
type StartupTaint struct {
	client    *Client
	node, key string
	log       *slog.Logger
}

// NewStartupTaint returns what removes the taints with a key, whatever their value and
// effect, from a node. It needs get and patch of nodes.
func NewStartupTaint(client *Client, node, key string, log *slog.Logger) *StartupTaint {
	return &StartupTaint{client: client, node: node, key: key, log: log}
}

// Run removes the taint whenever ready returns nil, until the context ends, and returns
// nil. What the server refuses is logged and tried again.
func (t *StartupTaint) Run(ctx context.Context, ready func() error) error {
	for failures := 0; ctx.Err() == nil; {
		pause := readyInterval
		if ready() == nil {
			removed, err := t.Remove(ctx)
			switch {
			case err == nil:
				failures, pause = 0, taintInterval+rand.N(taintInterval/5)
			case ctx.Err() == nil:
				failures++
				pause = pauseAfter(failures)
				t.log.Error("startup taint cannot be removed: no pod that does not tolerate it comes to this node", "taint", t.key,
					"node", t.node, "error", err, "hint", taintHint(err), "again", pause.Round(time.Millisecond))
			}
			if removed > 0 {
				t.log.Info("startup taint removed: podweir is ready on this node", "taint", t.key, "node", t.node)
			}
		}
		sleep(ctx, nil, t.client.pause(pause))
	}
	return nil
}

func taintHint(err error) string {
	if statusOf(err) == http.StatusForbidden {
		return "the service account needs get and patch of nodes"
	}
	return hint(err)
}

// patchOp is an operation of a JSON Patch (RFC 6902).
type patchOp struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Remove takes the taint off the node and returns how many there were. Each is removed
// only from where it was found, so that a change of others in between is an error and
// no other taint is lost.
func (t *StartupTaint) Remove(ctx context.Context) (removed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, taintTimeout)
	defer cancel()
	taints, err := t.taints(ctx)
	if err != nil {
		return 0, err
	}
	var patch []patchOp
	for i, raw := range slices.Backward(taints) { // those behind a removed one move up
		var taint struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal(raw, &taint); err != nil {
			return 0, fmt.Errorf("taint %d of node %s: %w", i, t.node, err)
		}
		if taint.Key == t.key {
			path := "/spec/taints/" + strconv.Itoa(i)
			patch = append(patch, patchOp{Op: "test", Path: path, Value: raw}, patchOp{Op: "remove", Path: path})
		}
	}
	if len(patch) == 0 {
		return 0, nil
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return 0, fmt.Errorf("encode patch of node %s: %w", t.node, err)
	}
	answer, err := t.client.Do(ctx, http.MethodPatch, t.path(), nil, body)
	if err != nil {
		return 0, fmt.Errorf("patch node %s: %w", t.node, err)
	}
	return len(patch) / 2, answer.Close()
}

func (t *StartupTaint) path() string { return "/api/v1/nodes/" + url.PathEscape(t.node) }

// taints reads the node's taints, as they are written. From the server's cache: a look
// that is a little old is found out by the patch.
func (t *StartupTaint) taints(ctx context.Context) ([]json.RawMessage, error) {
	body, err := t.client.Do(ctx, http.MethodGet, t.path(), url.Values{"resourceVersion": {"0"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", t.node, err)
	}
	defer func() { _ = body.Close() }()
	var node struct {
		Kind string `json:"kind"`
		Spec struct {
			Taints []json.RawMessage `json:"taints"`
		} `json:"spec"`
	}
	if err := json.NewDecoder(body).Decode(&node); err != nil {
		return nil, fmt.Errorf("get node %s: %w", t.node, err)
	}
	if node.Kind != "Node" {
		return nil, fmt.Errorf("get node %s: the answer is no Node but %q", t.node, node.Kind)
	}
	return node.Spec.Taints, nil
}
