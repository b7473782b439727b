// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package uninstall_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/agent/uninstall"
)

// answers is a client whose server answers by the kind of request.
type answers struct {
	list, watch string
	err         error
	asked       []string
}

func (a *answers) Do(_ context.Context, method, path string, query url.Values, _ []byte) (io.ReadCloser, error) {
	a.asked = append(a.asked, method+" "+path+" "+query.Get("fieldSelector")+" "+query.Get("resourceVersion"))
	text := a.list
	if query.Has("watch") {
		text = a.watch
	}
	return io.NopCloser(strings.NewReader(text)), a.err
}

const (
	listOfOne  = `{"kind":"DaemonSetList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"podweir","uid":"a"}}]}`
	emptyList  = `{"kind":"DaemonSetList","metadata":{"resourceVersion":"8"},"items":[]}`
	statusText = `{"kind":"Status","metadata":{},"status":"Failure","code":403}`
)

func TestList(t *testing.T) {
	t.Parallel()
	forbidden := errors.New("403 Forbidden")
	for name, test := range map[string]struct {
		answers
		want    []uninstall.Object
		version string
		fails   bool
	}{
		"one":             {answers{list: listOfOne}, []uninstall.Object{{UID: "a"}}, "7", false},
		"none":            {answers{list: emptyList}, nil, "8", false},
		"one that goes":   {answers{list: strings.Replace(listOfOne, `"uid"`, `"deletionTimestamp":"2026-01-01T00:00:00Z","uid"`, 1)}, []uninstall.Object{{UID: "a", Deleting: true}}, "7", false},
		"another":         {answers{list: strings.Replace(listOfOne, "podweir", "other", 1)}, nil, "7", false},
		"a status":        {answers{list: statusText}, nil, "", true},
		"nothing":         {answers{}, nil, "", true},
		"an empty object": {answers{list: "{}"}, nil, "", true},
		"half a list":     {answers{list: emptyList[:40]}, nil, "", true},
		"forbidden":       {answers{list: emptyList, err: forbidden}, nil, "", true},
	} {
		client := test.answers
		got, version, err := uninstall.NewDaemonSets(&client, "kube-system", "podweir").List(t.Context())
		if diff := cmp.Diff(test.want, got); diff != "" || version != test.version || (err != nil) != test.fails {
			t.Errorf("%s: List() = %v, %q, %v, want %v, %q, error %v", name, got, version, err, test.want, test.version, test.fails)
		}
		if want := http.MethodGet + " /apis/apps/v1/namespaces/kube-system/daemonsets metadata.name=podweir "; client.asked[0] != want {
			t.Errorf("%s: asked %q, want %q", name, client.asked[0], want)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	event := func(kind, name, more string) string {
		return `{"type":"` + kind + `","object":{"metadata":{"name":"` + name + `","uid":"a"` + more + `}}}` + "\n"
	}
	for name, test := range map[string]struct {
		stream string
		want   []uninstall.Event
		fails  bool
	}{
		"all kinds": {
			event("ADDED", "podweir", "") + event("MODIFIED", "podweir", `,"deletionTimestamp":"2026-01-01T00:00:00Z"`) +
				event("BOOKMARK", "", "") + event("DELETED", "other", "") + event("DELETED", "podweir", ""),
			[]uninstall.Event{
				{Kind: uninstall.Exists, Object: uninstall.Object{UID: "a"}},
				{Kind: uninstall.Exists, Object: uninstall.Object{UID: "a", Deleting: true}},
				{Kind: uninstall.Gone, Object: uninstall.Object{UID: "a"}},
			},
			false,
		},
		"an error event": {`{"type":"ERROR","object":{"kind":"Status","code":410}}` + "\n" + event("DELETED", "podweir", ""), nil, true},
		"cut off":        {event("DELETED", "podweir", "")[:50], nil, true},
		"no JSON":        {"<html>", nil, true},
	} {
		var got []uninstall.Event
		client := &answers{watch: test.stream}
		err := uninstall.NewDaemonSets(client, "kube-system", "podweir").Watch(t.Context(), "7", func(e uninstall.Event) {
			got = append(got, e)
		})
		if diff := cmp.Diff(test.want, got); diff != "" || (err != nil) != test.fails {
			t.Errorf("%s: Watch() = %v, error wanted: %v; events (-want +got):\n%s", name, err, test.fails, diff)
		}
	}
}

func TestParseName(t *testing.T) {
	t.Parallel()
	if namespace, name, err := uninstall.ParseName("kube-system/podweir"); namespace != "kube-system" || name != "podweir" || err != nil {
		t.Errorf("ParseName() = %q, %q, %v", namespace, name, err)
	}
	for _, bad := range []string{"", "podweir", "/podweir", "kube-system/", "a/b/c"} {
		if _, _, err := uninstall.ParseName(bad); err == nil || !strings.Contains(err.Error(), "namespace/name") {
			t.Errorf("ParseName(%q) = %v, want an error that says what is accepted", bad, err)
		}
	}
}
