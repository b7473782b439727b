// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// errExpired means that the server does not know the version any more.
var errExpired = errors.New("resource version has expired")

// list reads objects and calls each for every one: the answer is never in memory as a
// whole. It returns the version that they are of. An answer that is not of the kind, or
// not whole, is an error.
func (c *Client) list(ctx context.Context, path string, q url.Values, kind string, each func(*manifest)) (version string, err error) {
	body, err := c.Do(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	if version, err = decodeList(body, kind, each); err != nil {
		return "", fmt.Errorf("list of %s: %w", path, err)
	}
	return version, nil
}

func decodeList(body io.Reader, kind string, each func(*manifest)) (version string, err error) {
	dec := json.NewDecoder(body)
	if _, err := dec.Token(); err != nil {
		return "", err
	}
	is := ""
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return "", err
		}
		switch name {
		case "kind":
			err = dec.Decode(&is)
		case "metadata":
			var m struct {
				ResourceVersion string `json:"resourceVersion"`
			}
			err = dec.Decode(&m)
			version = m.ResourceVersion
		case "items":
			err = decodeItems(dec, each)
		default:
			err = dec.Decode(&struct{}{})
			if _, other := errors.AsType[*json.UnmarshalTypeError](err); other {
				err = nil
			}
		}
		if err != nil {
			return "", err
		}
	}
	if _, err := dec.Token(); err != nil {
		return "", err
	}
	if is != kind || version == "" {
		return "", fmt.Errorf("the answer is no %s with a resourceVersion but %q", kind, is)
	}
	return version, nil
}

func decodeItems(dec *json.Decoder, each func(*manifest)) error {
	// null, or the beginning of an array.
	if t, err := dec.Token(); err != nil || t == nil {
		return err
	}
	for dec.More() {
		var m manifest
		if err := dec.Decode(&m); err != nil {
			return err
		}
		each(&m)
	}
	_, err := dec.Token()
	return err
}

// follow calls opened, and then each for what changed since a version, and returns the
// last version that it came to. The server is asked to keep the watch for as long as it lives. A watch that the server ended in order is no error.
func (c *Client) follow(
	ctx context.Context, path string, q url.Values, since string, lives time.Duration, opened func(), each func(m *manifest, gone bool),
) (string, error) {
	q.Set("watch", "true")
	q.Set("resourceVersion", since)
	q.Set("allowWatchBookmarks", "true")
	q.Set("timeoutSeconds", strconv.Itoa(int(lives/time.Second)))
	body, err := c.Do(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return since, err
	}
	defer func() { _ = body.Close() }()
	opened()
	dec := json.NewDecoder(body)
	for {
		var e watchEvent
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return since, nil
		}
		if err != nil {
			return since, fmt.Errorf("watch of %s: %w", path, err)
		}
		if e.Type == "ERROR" {
			return since, e.failure()
		}
		m := &e.Object.manifest
		if m.Metadata.ResourceVersion != "" {
			since = m.Metadata.ResourceVersion
		}
		switch e.Type {
		case "ADDED", "MODIFIED":
			each(m, false)
		case "DELETED":
			each(m, true)
		}
	}
}

// failure is the error that a watch was told.
func (e *watchEvent) failure() error {
	o := &e.Object
	if o.Code == http.StatusGone || o.Reason == "Expired" {
		return fmt.Errorf("%w: %s", errExpired, o.Message)
	}
	return &StatusError{Code: o.Code, Message: o.Message}
}
