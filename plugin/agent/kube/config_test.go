// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube_test

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestNotInACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := kube.InCluster(t.TempDir()); !errors.Is(err, kube.ErrNotInCluster) {
		t.Errorf("InCluster = %v, want ErrNotInCluster", err)
	}
}

func TestKubeconfig(t *testing.T) {
	c := newCluster(t)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
	file := func(user string) string {
		path := filepath.Join(c.dir, "kubeconfig")
		text := "current-context: here\ncontexts:\n- {name: other, context: {cluster: x, user: y}}\n" +
			"- {name: here, context: {cluster: c, user: u}}\nclusters:\n- name: c\n  cluster: {server: \"" + c.URL +
			"\", certificate-authority-data: " + ca + "}\nusers:\n- {name: u, user: " + user + "}\n"
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	c.Put(pod("a", nil))
	for _, user := range []string{"{token: token-1}", "{tokenFile: token}"} {
		conf, err := kube.FromKubeconfig(file(user))
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		if c.client, err = kube.NewClient(conf); err != nil {
			t.Fatal(err)
		}
		_, changed := c.watch(t)
		expect(t, changed, "a")
	}
	for user, part := range map[string]string{
		"{exec: {command: aws}}":                 "exec is not accepted, want token",
		"{username: u, password: p}":             "username is not accepted",
		"{client-certificate-data: AAAA}":        "client certificate",
		"{client-certificate-data: '*'}":         "line ",
		"{client-certificate: there/is/nothing}": "there/is/nothing",
	} {
		if _, err := kube.FromKubeconfig(file(user)); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("user %s: %v, want %q in it", user, err, part)
		}
	}
	if _, err := kube.NewClient(&kube.Config{Server: "10.0.0.1:6443"}); err == nil {
		t.Error("a server without a scheme is accepted")
	}
}

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
