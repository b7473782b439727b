// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
)

// BenchmarkPrivilegedLost looks for leftovers on a node with 250 pods that have no limit.
func BenchmarkPrivilegedLost(b *testing.B) {
	n, paths := testutil.NewNetNS(b), engine.Paths{Pins: filepath.Join(testutil.BPFFS(b), "podweir"), Run: b.TempDir()}
	for i := range 250 {
		pod := testutil.NewNetNS(b)
		testutil.VethPair(b, testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: n, Name: fmt.Sprintf("veth%d", i)})
	}
	var used unix.Rusage
	cpu := func() time.Duration {
		if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
			b.Fatal(err)
		}
		return time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	before := cpu()
	for b.Loop() {
		err := n.Do(func() error {
			node, err := engine.Open(paths)
			if err != nil {
				return err
			}
			defer node.Close()
			lost, err := node.Lost()
			if err == nil && len(lost) > 0 {
				err = fmt.Errorf("found %v, want nothing", lost)
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
}
