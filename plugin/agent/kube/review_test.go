// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/agent/kube/apitest"
)

// A token is good if it was made for the agents and belongs to their readers' account:
// neither somebody else's for that audience nor that account's for the API server.
func TestMayRead(t *testing.T) {
	c := newCluster(t)
	for token, want := range map[string]bool{
		"podweir@reader": true, "podweir@pod": false, "reader": false, "api@reader": false, "podweir@": false, "": false,
	} {
		if got, err := c.client.MayRead(t.Context(), token, "podweir", "reader"); got != want || err != nil {
			t.Errorf("MayRead(%q) = %v, %v, want %v", token, got, err, want)
		}
	}
	c.Fail(http.StatusForbidden)
	if got, err := c.client.MayRead(t.Context(), "podweir@reader", "podweir", "reader"); got || err == nil || !strings.Contains(err.Error(), "TokenReview") {
		t.Errorf("MayRead without the right to review = %v, %v, want an error that names the review", got, err)
	}
}

func TestMayGet(t *testing.T) {
	c := newCluster(t)
	for _, tc := range []struct {
		token, path string
		want        bool
	}{
		{"prometheus:other:" + apitest.Scrapers, "/metrics", true},
		{"prometheus:" + apitest.Scrapers, "/debug/pprof/", false},
		{"pod:other", "/metrics", false},
		{"", "/metrics", false},
	} {
		if got, err := c.client.MayGet(t.Context(), tc.token, tc.path); got != tc.want || err != nil {
			t.Errorf("MayGet(%q, %q) = %v, %v, want %v", tc.token, tc.path, got, err, tc.want)
		}
	}
	c.Fail(http.StatusForbidden)
	if got, err := c.client.MayGet(t.Context(), "prometheus:"+apitest.Scrapers, "/metrics"); got || err == nil || !strings.Contains(err.Error(), "TokenReview") {
		t.Errorf("MayGet without the right to review = %v, %v, want an error that names the review", got, err)
	}
}
