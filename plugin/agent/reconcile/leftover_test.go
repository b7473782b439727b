// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"slices"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
)

func TestLeftoversAreSearchedForFromTimeToTime(t *testing.T) {
	t.Parallel()
	const pass = time.Minute
	begin := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		found bool
		since time.Duration
		due   bool
	}{
		"nothing was found, a pass ago":                {false, pass, false},
		"nothing was found, nine passes ago":           {false, 9 * pass, false},
		"nothing was found, ten passes ago":            {false, 10 * pass, true},
		"nothing was found, ten passes ago but jitter": {false, 10*pass - time.Second, true},
		"something was found, just now":                {true, time.Second, false},
		"something was found, a pass ago":              {true, pass, true},
		"something was found, a pass ago but jitter":   {true, pass - time.Second, true},
	} {
		l := leftovers{at: begin}
		if tc.found {
			l.found = []engine.Lost{{}}
		}
		if due := l.due(begin.Add(tc.since), pass); due != tc.due {
			t.Errorf("%s: due %t, want %t", name, due, tc.due)
		}
	}
}

// Only what is found twice is removed, and not what a pod without its limit may need.
func TestLeftoversThatStay(t *testing.T) {
	t.Parallel()
	on := func(inode uint64, host int) engine.Lost {
		return engine.Lost{Interface: attach.Interface{NetNSInode: inode, NetNSCookie: 10 * inode, PodIndex: 2, HostIndex: host}}
	}
	hostOnly := func(host int) engine.Lost { return engine.Lost{Interface: attach.Interface{HostIndex: host}} }
	inodes := map[string]uint64{"/run/netns/a": 1, "/run/netns/b": 2}
	is := func(path string, inode uint64) bool { return inodes[path] == inode }
	reused := on(1, 11)
	reused.Interface.NetNSCookie = 77
	for name, tc := range map[string]struct {
		then, now []engine.Lost
		paths     []string
		want      []engine.Lost
	}{
		"found for the first time":        {nil, []engine.Lost{on(1, 11)}, nil, nil},
		"found twice":                     {[]engine.Lost{on(1, 11), on(2, 12)}, []engine.Lost{on(2, 12)}, nil, []engine.Lost{on(2, 12)}},
		"a new pod in the same namespace": {[]engine.Lost{on(1, 11)}, []engine.Lost{reused}, nil, nil},
		"adopted meanwhile":               {[]engine.Lost{on(1, 11)}, nil, nil, nil},
		"of a pod without its limit": {
			[]engine.Lost{on(1, 11), on(2, 12)}, []engine.Lost{on(1, 11), on(2, 12)}, []string{"/run/netns/a"}, []engine.Lost{on(2, 12)},
		},
		"a device of the host's":                          {[]engine.Lost{hostOnly(11)}, []engine.Lost{hostOnly(11)}, nil, []engine.Lost{hostOnly(11)}},
		"another device of the host's":                    {[]engine.Lost{hostOnly(11)}, []engine.Lost{hostOnly(12)}, nil, nil},
		"a device of the host's, and pods without limits": {[]engine.Lost{hostOnly(11)}, []engine.Lost{hostOnly(11)}, []string{"/run/netns/b"}, nil},
	} {
		l := leftovers{found: tc.then}
		c := claims{paths: tc.paths, is: is}
		got := c.leave(l.again(tc.now))
		same := func(a, b engine.Lost) bool { return a.Interface == b.Interface }
		if !slices.EqualFunc(got, tc.want, same) {
			t.Errorf("%s: removes %+v, want %+v", name, got, tc.want)
		}
	}
}
