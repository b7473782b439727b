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
	err := r.client.result(ctx, &out)
	return &out, errors.Join(err, r.server.proc.kill())
}
