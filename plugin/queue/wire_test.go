// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"testing/quick"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// Within the range of 32 bits of ticks, a size goes to ticks and back with an
// error below what one tick carries.
func TestTicksAndBack(t *testing.T) {
	property := func(sizeSeed, rateSeed uint64) bool {
		rate := units.ByteRate(125 + rateSeed%50_000_000_000)
		size := units.Bytes(1 + sizeSeed%500_000_000)
		ticks := toTicks(size, rate)
		if ticks == math.MaxUint32 {
			return true
		}
		tick := units.Bytes(uint64(rate)*64/nsPerSec) + 1
		back := fromTicks(ticks, rate)
		if back > size+1 || size > back+tick {
			t.Logf("%d bytes at %d bytes/s come back as %d", size, rate, back)
			return false
		}
		return true
	}
	must.OK(t, quick.Check(property, &quick.Config{MaxCount: 20_000}))
	// Where a byte takes a tick and more, exactly.
	for _, rate := range []units.ByteRate{125, 1_250_000, 15_000_000} {
		for _, size := range []units.Bytes{1, 1518, 9_100, 66_000} {
			if ticks := toTicks(size, rate); ticks != math.MaxUint32 && fromTicks(ticks, rate) != size {
				t.Errorf("%d bytes at %d bytes/s come back as %d", size, rate, fromTicks(ticks, rate))
			}
		}
	}
	must.Be(t, "toTicks of 33,600 s", math.MaxUint32, toTicks(4_200_000, 125))
}

func TestOptionsRefuse(t *testing.T) {
	cases := map[string]shaping.Qdisc{
		"tbf without a rate":       {Kind: shaping.KindTBF, Burst: 1},
		"tbf without a bucket":     {Kind: shaping.KindTBF, Rate: 1},
		"tbf with a 4 GiB bucket":  {Kind: shaping.KindTBF, Rate: 1, Burst: 1 << 32},
		"bfifo without a limit":    {Kind: shaping.KindBfifo},
		"bfifo of 4 GiB":           {Kind: shaping.KindBfifo, Limit: 1 << 32},
		"prio with one band":       {Kind: shaping.KindPrio, Bands: 1},
		"a kind that is not known": {Kind: "cake"},
	}
	for name, q := range cases {
		must.Fail(t, name+": options", must.Err(options(&q, 1)))
	}
	must.Fail(t, "classOptions without a ceil", must.Err(classOptions(&shaping.Class{Rate: 1})))
}

// What no filter has classified is heavy, also beside a third band, which drops.
func TestPrioSendsTheRestToTheSecondBand(t *testing.T) {
	for _, bands := range []int{2, 3} {
		attr := must.Get(prioOptions(&shaping.Qdisc{Kind: shaping.KindPrio, Bands: bands}))(t)
		want := append([]byte{byte(bands), 0, 0, 0}, bytes.Repeat([]byte{1}, prioMapSize)...)
		must.Match(t, fmt.Sprint(bands, " bands"), want, attr.Data)
	}
}

// Whatever the kernel, or another process on the socket, sends: an error or a result,
// never a panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 64))
	f.Fuzz(func(_ *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err != nil {
			return
		}
		for _, kind := range []string{"tbf", "htb", "fq", "prio", "bfifo", "bpf", "u32"} {
			m.kind, m.options, m.hasOpts = kind, b[min(len(b), 20):], true
			_, _ = parseQdisc(&m)
			_, _ = parseClass(&m)
			_, _, _ = parseFilter(&m)
		}
	})
}

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
		"a foreign bucket":          {[][]Qdisc{{bucket}, {bucket}, {bucket}}, listAttempts},
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
	must.Is(t, "a device that is gone", hostif.ErrNoDevice, err)
}
