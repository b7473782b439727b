// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
)

// A record that cannot be read is one problem: what is on its interface is no second one.
// What else has no record still is.
func TestWithoutUnread(t *testing.T) {
	t.Parallel()
	lost := func(name, netns string) engine.Lost {
		return engine.Lost{Interface: attach.Interface{PodName: name, NetNSPath: netns}}
	}
	id := attach.ID{ContainerID: "c1", IfName: "eth0"}
	unread := Attachment{ID: id, Error: "unknown record version: 99"}
	gone := Attachment{ID: id, Interface: attach.Interface{PodName: "eth0"}, Error: "the pod is gone", Gone: true}
	all := []engine.Lost{lost("net1", "/run/netns/a"), lost("eth0", "/run/netns/a"), lost("eth0", "/run/netns/b")}
	for name, c := range map[string]struct {
		has  []Attachment
		want []string
	}{
		"all are read": {[]Attachment{{ID: id}, gone}, []string{"net1 in /run/netns/a", "eth0 in /run/netns/a", "eth0 in /run/netns/b"}},
		"one is not":   {[]Attachment{unread}, []string{"net1 in /run/netns/a", "eth0 in /run/netns/b"}},
		"two are not":  {[]Attachment{unread, unread, unread}, []string{"net1 in /run/netns/a"}},
	} {
		var got []string
		for _, l := range withoutUnread(append([]engine.Lost{}, all...), c.has) {
			got = append(got, l.Name())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
