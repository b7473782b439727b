// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// tokenStatus is who a token belongs to, as TokenReview tells it.
type tokenStatus struct {
	Authenticated bool     `json:"authenticated"`
	Audiences     []string `json:"audiences"`
	User          struct {
		Name   string              `json:"username"`
		UID    string              `json:"uid"`
		Groups []string            `json:"groups"`
		Extra  map[string][]string `json:"extra"`
	} `json:"user"`
}

func (c *Client) reviewToken(ctx context.Context, spec map[string]any) (tokenStatus, error) {
	var who struct {
		Status tokenStatus `json:"status"`
	}
	err := c.review(ctx, "authentication.k8s.io", "TokenReview", spec, &who)
	return who.Status, err
}

// MayGet asks the API server whether who has a token may get a path that is none of the
// API: a user that it authenticates, and whom it allows the verb get on that
// nonResourceURL. It needs create on tokenreviews and subjectaccessreviews.
func (c *Client) MayGet(ctx context.Context, token, path string) (bool, error) {
	who, err := c.reviewToken(ctx, map[string]any{"token": token})
	if err != nil || !who.Authenticated {
		return false, err
	}
	u := who.User
	return c.reviewAccess(ctx, "SubjectAccessReview", map[string]any{
		"user": u.Name, "uid": u.UID, "groups": u.Groups, "extra": u.Extra,
		"nonResourceAttributes": map[string]any{"path": path, "verb": "get"},
	})
}

// mayI asks the API server whether the client has a right.
func (c *Client) mayI(ctx context.Context, r *Right) (bool, error) {
	return c.reviewAccess(ctx, "SelfSubjectAccessReview", map[string]any{"resourceAttributes": map[string]any{
		"verb": r.Verb, "group": r.Group, "resource": r.Resource, "namespace": r.Namespace, "name": r.Name,
	}})
}

func (c *Client) reviewAccess(ctx context.Context, kind string, spec map[string]any) (bool, error) {
	var may struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err := c.review(ctx, "authorization.k8s.io", kind, spec, &may)
	return err == nil && may.Status.Allowed, err
}

// MayRead asks the API server whether a token was made for an audience and belongs to an
// account, as system:serviceaccount:kube-system:podweir-reader. A pod can have a token
// of its own account for any audience, so that both have to fit. It needs create on
// tokenreviews.
func (c *Client) MayRead(ctx context.Context, token, audience, account string) (bool, error) {
	who, err := c.reviewToken(ctx, map[string]any{"token": token, "audiences": []string{audience}})
	return err == nil && who.Authenticated && who.User.Name == account && slices.Contains(who.Audiences, audience), err
}

// reviewResources are where reviews of a kind are created.
var reviewResources = map[string]string{
	"TokenReview": "tokenreviews", "SubjectAccessReview": "subjectaccessreviews", "SelfSubjectAccessReview": "selfsubjectaccessreviews",
}

// maxReviewBytes is how much of an answer is read.
const maxReviewBytes = 1 << 20

func (c *Client) review(ctx context.Context, group, kind string, spec map[string]any, answer any) error {
	body, err := json.Marshal(map[string]any{"apiVersion": group + "/v1", "kind": kind, "spec": spec})
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	res, err := c.Do(ctx, http.MethodPost, "/apis/"+group+"/v1/"+reviewResources[kind], nil, body)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	defer func() { _ = res.Close() }()
	if err := json.NewDecoder(io.LimitReader(res, maxReviewBytes)).Decode(answer); err != nil {
		return fmt.Errorf("%s: read the answer: %w", kind, err)
	}
	return nil
}
