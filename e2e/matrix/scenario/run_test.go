// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestWithinEndsAStepAtItsLimit(t *testing.T) {
	err := within(t.Context(), 10*time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || !strings.Contains(err.Error(), "not done after 10ms") {
		t.Errorf("within() = %v", err)
	}
}

func TestExpectationError(t *testing.T) {
	if err := expect("x", nil); err != nil {
		t.Errorf("expect of what is there = %v", err)
	}
	seen := errors.New("y")
	err := expect("x", seen)
	if !errors.Is(err, seen) || err.Error() != "expected: x; seen: y" {
		t.Errorf("expect() = %v", err)
	}
}

func TestUndeclaredFindings(t *testing.T) {
	found := map[string]string{"PW1": "n1: PW1: warn", "PW2": "n1: PW2: fail"}
	if err := undeclared(found, map[string]string{"PW1": "so it is", "PW2": "and this"}); err != nil {
		t.Errorf("declared findings are an error: %v", err)
	}
	err := undeclared(found, map[string]string{"PW1": "so it is"})
	if err == nil || err.Error() != found["PW2"] {
		t.Errorf("undeclared() = %v, want PW2 alone", err)
	}
}

func TestCapInForce(t *testing.T) {
	page := `podweir_pod_limit_bits_per_second{direction="egress",interface="eth0",namespace="default",pod="a"} 1e+07
podweir_pod_limit_bits_per_second{direction="ingress",interface="net1",namespace="default",pod="a"} 5e+06
podweir_pod_limit_bits_per_second{direction="ingress",interface="eth0",namespace="default",pod="ab"} 3e+06
`
	for _, tc := range []struct {
		pod, direction string
		want           uint64
	}{{"a", "egress", 10_000_000}, {"a", "ingress", 0}, {"ab", "ingress", 3_000_000}} {
		if got := capInForce(page, tc.pod, tc.direction); got != tc.want {
			t.Errorf("%s of %s is %d, want %d", tc.direction, tc.pod, got, tc.want)
		}
	}
}
