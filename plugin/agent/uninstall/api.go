// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Doer sends a request to the API server and returns the body of a successful
// answer; every other answer is an error.
type Doer interface {
	Do(ctx context.Context, method, path string, query url.Values, body []byte) (io.ReadCloser, error)
}

// DaemonSets implements [API] for the DaemonSet of one name. It needs list and
// watch on daemonsets in its namespace, which may be limited to the name.
type DaemonSets struct {
	client          Doer
	namespace, name string
}

// NewDaemonSets returns the API for a DaemonSet.
func NewDaemonSets(client Doer, namespace, name string) *DaemonSets {
	return &DaemonSets{client, namespace, name}
}

// ParseName splits "namespace/name".
func ParseName(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("DaemonSet %q is not accepted, want namespace/name", s)
	}
	return namespace, name, nil
}

// watchSeconds is how long the server is asked to keep a watch: as long as it does
// by default at most (--min-request-timeout, times two).
const watchSeconds = 3600

// metadata is all that is read of a DaemonSet.
type metadata struct {
	Metadata struct {
		Name              string `json:"name"`
		UID               string `json:"uid"`
		ResourceVersion   string `json:"resourceVersion"`
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
}

func (m *metadata) object() Object {
	return Object{UID: m.Metadata.UID, Deleting: m.Metadata.DeletionTimestamp != ""}
}

func (d *DaemonSets) do(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	query.Set("fieldSelector", "metadata.name="+d.name)
	body, err := d.client.Do(ctx, http.MethodGet,
		"/apis/apps/v1/namespaces/"+url.PathEscape(d.namespace)+"/daemonsets", query, nil)
	if err != nil {
		return nil, fmt.Errorf("DaemonSet %s/%s: %w", d.namespace, d.name, err)
	}
	return body, nil
}

// List implements [API].
func (d *DaemonSets) List(ctx context.Context) ([]Object, string, error) {
	body, err := d.do(ctx, url.Values{})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = body.Close() }()
	var list struct {
		Kind     string `json:"kind"`
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []metadata `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, "", fmt.Errorf("DaemonSet %s/%s: read the list: %w", d.namespace, d.name, err)
	}
	// Half an answer, or another party's, must not look like an empty list.
	if list.Kind != "DaemonSetList" || list.Metadata.ResourceVersion == "" {
		return nil, "", fmt.Errorf("DaemonSet %s/%s: the answer is no list of DaemonSets but %q", d.namespace, d.name, list.Kind)
	}
	var found []Object
	for i := range list.Items {
		if list.Items[i].Metadata.Name == d.name {
			found = append(found, list.Items[i].object())
		}
	}
	return found, list.Metadata.ResourceVersion, nil
}

// Watch implements [API].
func (d *DaemonSets) Watch(ctx context.Context, version string, f func(Event)) error {
	body, err := d.do(ctx, url.Values{
		"watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(watchSeconds)},
	})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	decoder := json.NewDecoder(body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("DaemonSet %s/%s: watch: %w", d.namespace, d.name, err)
		}
		if e.Type == "ERROR" {
			return fmt.Errorf("DaemonSet %s/%s: watch: %s", d.namespace, d.name, e.Object)
		}
		var m metadata
		if err := json.Unmarshal(e.Object, &m); err != nil {
			return fmt.Errorf("DaemonSet %s/%s: watch: %w", d.namespace, d.name, err)
		}
		if m.Metadata.Name != d.name {
			continue // a bookmark, or another party's
		}
		switch e.Type {
		case "ADDED", "MODIFIED":
			f(Event{Exists, m.object()})
		case "DELETED":
			f(Event{Gone, m.object()})
		}
	}
}
