// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
)

// RequestsRun is load of requests in progress, with both of its ends.
type RequestsRun struct{ client, server *worker }

// Wait returns the result when the load has ended. What was not answered is a failed
// request.
func (r *RequestsRun) Wait(ctx context.Context) (*Latencies, error) {
	var out Latencies
	return &out, r.result(ctx, &out)
}

func (r *RequestsRun) result(ctx context.Context, v any) error {
	return errors.Join(r.client.result(ctx, v), r.server.proc.kill())
}
