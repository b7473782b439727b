// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// Right is one that the agent works without, and should have.
type Right struct {
	Verb, Group, Resource string
	// Namespace and Name are empty for all.
	Namespace, Name string
	// Without says what happens without it.
	Without string
}

// The time between two questions for rights, and while one is lacking: of 5,000 nodes with four rights each the
// API server answers 67 a second, or 667, by SelfSubjectAccessReview, which everybody may ask for.
const (
	rightsEvery   = 5 * time.Minute
	rightsLacking = 30 * time.Second
)

// Rights asks the API server which rights the agent's account lacks: most are needed so seldom that nobody would know
// until then.
type Rights struct {
	client *Client
	wanted []Right

	mu      sync.Mutex
	lacking error
}

// NewRights returns what asks for rights while [Rights.Run] runs.
func NewRights(client *Client, wanted []Right) *Rights {
	return &Rights{client: client, wanted: wanted}
}

// Err says which rights were lacking when the API server was asked last, nil if none or if it never answered.
func (r *Rights) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lacking
}

// Run asks until the context ends, and returns nil.
func (r *Rights) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		lacking, err := r.ask(ctx)
		if err == nil {
			r.mu.Lock()
			r.lacking = lacking
			r.mu.Unlock()
		}
		pause := rightsEvery
		if err != nil || lacking != nil {
			pause = rightsLacking
		}
		sleep(ctx, nil, r.client.pause(pause))
	}
	return nil
}

func (r *Rights) ask(ctx context.Context) (lacking, err error) {
	var all []string
	for i := range r.wanted {
		w := &r.wanted[i]
		allowed, err := r.client.mayI(ctx, w)
		if err != nil {
			return nil, err
		}
		if !allowed {
			all = append(all, w.Verb+" of "+w.Resource+", so that "+w.Without)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return errors.New("the service account lacks " + strings.Join(all, "; and ")), nil
}
