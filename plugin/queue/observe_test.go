// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"testing"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
)

// TestListWithAHole: a dump that left a device out, or a part of it, is not believed at
// once; a device that has nothing to tell is, after a few times.
func TestListWithAHole(t *testing.T) {
	qdisc := func(kind shaping.QdiscKind, handle, parent shaping.TCHandle) Qdisc {
		return Qdisc{Qdisc: shaping.Qdisc{Kind: kind, Handle: handle, Parent: parent}}
	}
	bucket, bands := qdisc(shaping.KindTBF, 0x100000, shaping.RootParent), qdisc(shaping.KindPfifoFast, 0x110000, 0x100001)
	hooks := qdisc("clsact", clsactHandle, clsactParent)
	whole := []Qdisc{bucket, bands, hooks}
	for name, tc := range map[string]struct {
		lists [][]Qdisc
		tries int
	}{
		"whole":                     {[][]Qdisc{whole}, 1},
		"the device is missing":     {[][]Qdisc{nil, whole}, 2},
		"its beginning is missing":  {[][]Qdisc{{bands, hooks}, whole}, 2},
		"its end is missing":        {[][]Qdisc{{bucket}, whole}, 2},
		"twice":                     {[][]Qdisc{nil, {bands}, whole}, 3},
		"the kernel's default":      {[][]Qdisc{{qdisc("noqueue", 0, shaping.RootParent)}}, 1},
		"a queue for each transmit": {[][]Qdisc{{qdisc("mq", 0, shaping.RootParent), qdisc("fq_codel", 0, 1), qdisc("fq_codel", 0, 2)}}, 1},
		"hooks alone":               {[][]Qdisc{{qdisc("noqueue", 0, shaping.RootParent), hooks}}, 1},
		"never up":                  {[][]Qdisc{nil, nil, nil}, listAttempts},
		"somebody's bucket":         {[][]Qdisc{{bucket}, {bucket}, {bucket}}, listAttempts},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			list := func() ([]Qdisc, error) { tries++; return tc.lists[tries-1], nil }
			got, err := wholeList(list, func() error { return nil })
			if want := tc.lists[tc.tries-1]; err != nil || tries != tc.tries || len(got) != len(want) {
				t.Errorf("after %d lists %v, %v, want %v after %d", tries, got, err, want, tc.tries)
			}
		})
	}
	_, err := wholeList(func() ([]Qdisc, error) { return nil, nil }, func() error { return hostif.ErrNoDevice })
	if !errors.Is(err, hostif.ErrNoDevice) {
		t.Errorf("of a device that is gone: %v, want ErrNoDevice", err)
	}
}
